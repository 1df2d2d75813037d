package tables

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"loxilb/internal/datapath/bpf"
)

// putEndpoints gives every endpoint of the table a row: the one it has, one that was ending, or a new one. fresh
// are those that were not in the service before.
func (t *Tables) putEndpoints(s *service, want *bpf.ServiceTable) (order, fresh []*endpoint, err error) {
	have := make(map[netip.AddrPort]*endpoint, len(s.order))
	for _, e := range s.order {
		have[e.at] = e
	}
	order = make([]*endpoint, 0, len(want.Endpoints))
	for _, row := range want.Endpoints {
		at := bpf.AddrPort(row.Addr, row.Port)
		e, ok := have[at]
		if !ok {
			if e, err = t.putEndpoint(s, at, row); err != nil {
				return nil, fresh, err
			}
			fresh = append(fresh, e)
		} else if err = t.shiftEndpoint(e, row.Shift); err != nil {
			return nil, fresh, err
		}
		if err := t.sourceEndpoint(e, row.Source); err != nil {
			return nil, fresh, err
		}
		e.weight = row.Weight
		order = append(order, e)
	}
	return order, fresh, t.writeEndpoints(fresh, 0)
}

// putEndpoint takes an endpoint back that was ending, or makes one. Its row is not written yet.
func (t *Tables) putEndpoint(s *service, at netip.AddrPort, row bpf.EndpointTable) (*endpoint, error) {
	if e, ok := s.ending[at]; ok {
		e.takes, e.shift = row.Takes, row.Shift
		delete(s.ending, at)
		delete(t.ending, e.id)
		return e, nil
	}
	id, used, err := t.endpointIDs.Get()
	if err != nil {
		return nil, err
	}
	if used {
		if err := t.clearEndpoint(id); err != nil {
			t.endpointIDs.Put(id, true)
			return nil, err
		}
	}
	e := &endpoint{id: id, at: at, takes: row.Takes, shift: row.Shift, service: s}
	t.endpoints[id] = e
	t.countLocal(e, 1)
	return e, nil
}

// shiftEndpoint has new connections go to a port for each of the service's ports, or all to one.
func (t *Tables) shiftEndpoint(e *endpoint, shift bool) error {
	if e.shift == shift {
		return nil
	}
	e.shift = shift
	return t.writeEndpoint(e, 0)
}

func (t *Tables) writeEndpoint(e *endpoint, flags uint16) error {
	return t.writeEndpoints([]*endpoint{e}, flags)
}

// endpointRow is the row of an endpoint as the packet path reads it.
func endpointRow(e *endpoint, flags uint16) bpf.TcEndpoint {
	row := bpf.TcEndpoint{
		Addr: bpf.Addr(e.at.Addr()), Port: bpf.Port(e.at.Port()), Flags: endpointInUse | flags, Service: e.service.id,
		Weight: e.takes, Source: sourceRow(e.source),
	}
	if e.shift {
		row.Flags |= endpointShift
		row.PortShift = e.at.Port() - bpf.Port(e.service.key.Port) // modulo 65,536, as the packet path adds it
	}
	return row
}

// writeEndpoints writes rows by one system call.
func (t *Tables) writeEndpoints(list []*endpoint, flags uint16) error {
	if len(list) == 0 {
		return nil
	}
	ids, rows := make([]uint32, len(list)), make([]bpf.TcEndpoint, len(list))
	for i, e := range list {
		ids[i] = e.id
		rows[i] = endpointRow(e, flags)
	}
	if _, err := t.maps.Endpoints.BatchUpdate(ids, rows, nil); err != nil {
		return fmt.Errorf("write endpoints: %w", err)
	}
	return nil
}

// clearEndpoint zeroes the counters of a row that had another owner.
func (t *Tables) clearEndpoint(id uint32) error {
	zero := make([]bpf.TcEndpointTraffic, ebpf.MustPossibleCPU())
	if err := t.maps.EndpointTraffics.Put(id, zero); err != nil {
		return fmt.Errorf("clear traffic: %w", err)
	}
	if err := t.maps.EndpointStates.Put(id, bpf.TcEndpointState{}); err != nil {
		return fmt.Errorf("clear counters: %w", err)
	}
	return nil
}

// replaceOrder ends the endpoints that are no longer in the service.
func (t *Tables) replaceOrder(s *service, order []*endpoint, of []uint32) error {
	gone := s.order
	s.order, s.of = order, of
	if len(gone) == 0 {
		return nil
	}
	stay := make(map[*endpoint]bool, len(order))
	for _, e := range order {
		stay[e] = true
	}
	gone = slices.DeleteFunc(gone, func(e *endpoint) bool { return stay[e] })
	return t.endEndpoints(gone, endpointEndUDP)
}

// putWeights has endpoints take as many new connections as the table says. It follows the service's row, whose slots
// lead to no endpoint of weight 0 any more: what the rows add is the share of those that are chosen by their load,
// and that a client does not come back to one that takes none.
func (t *Tables) putWeights(order []*endpoint, want *bpf.ServiceTable) error {
	for i, e := range order {
		was := e.takes
		if e.takes = want.Endpoints[i].Takes; e.takes == was {
			continue
		}
		if err := t.writeEndpoint(e, 0); err != nil {
			e.takes = was
			return err
		}
	}
	return nil
}
