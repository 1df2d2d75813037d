package tables

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// putEndpoints assigns every endpoint of the table a row: its present row, the row of an ending
// endpoint, or a new one.
func (t *Tables) putEndpoints(s *service, want *bpf.ServiceTable, exists bool, undo *undoLog) (order []*endpoint, err error) {
	have := make(map[netip.AddrPort]*endpoint, len(s.order))
	for _, e := range s.order {
		have[e.at()] = e
	}
	if err := t.checkRoom(s, want, have); err != nil {
		return nil, err
	}
	var fresh []*endpoint // not in the service before
	undo.add(func() error {
		deadline := bpf.Deadline{}
		if !exists {
			s.deleted = true
			deadline = t.deadlineOfDeletion()
		}
		return t.endEndpoints(fresh, deadline)
	})
	order = make([]*endpoint, 0, len(want.Endpoints))
	compared := want.Algorithm == uint8(bpf.TcAlgorithmALGORITHM_LC)
	for _, row := range want.Endpoints {
		at := bpf.AddrPort(row.Addr, row.Port)
		e, ok := have[at]
		if !ok {
			if e, err = t.addEndpoint(s, at, row, compared); err != nil {
				return nil, err
			}
			fresh = append(fresh, e)
		} else if err = t.updateEndpoint(e, row, compared, undo); err != nil {
			return nil, err
		}
		order = append(order, e)
	}
	return order, t.writeEndpoints(fresh, 0)
}

// checkRoom returns ErrFull if there are not enough rows for all new endpoints of the table.
// Without this check, a failing service would use up rows that smaller services need.
func (t *Tables) checkRoom(s *service, want *bpf.ServiceTable, have map[netip.AddrPort]*endpoint) error {
	free := t.endpointIDs.Free()
	if free >= len(want.Endpoints) {
		return nil
	}
	for _, row := range want.Endpoints {
		at := bpf.AddrPort(row.Addr, row.Port)
		if have[at] != nil || s.ending[at] != nil {
			continue
		}
		if free--; free < 0 {
			return ErrFull
		}
	}
	return nil
}

// addEndpoint reuses an endpoint that was ending, or makes one. Its row is not written yet.
func (t *Tables) addEndpoint(s *service, at netip.AddrPort, row bpf.EndpointTable, compared bool) (*endpoint, error) {
	if e, ok := s.ending[at]; ok {
		e.currentWeight = row.CurrentWeight
		e.setTarget(row, compared)
		if compared {
			t.newlyCompared = append(t.newlyCompared, e.id)
		}
		delete(s.ending, at)
		delete(t.ending, e.id)
		return e, nil
	}
	id, used, err := t.endpointIDs.Get()
	if err != nil {
		return nil, err
	}
	if err := t.makeRows(id); err != nil {
		t.endpointIDs.Put(id, used)
		return nil, err
	}
	if used {
		if err := t.clearEndpoint(id); err != nil {
			t.endpointIDs.Put(id, true)
			return nil, err
		}
	}
	e := &endpoint{id: id, addr: row.Addr, port: row.Port, currentWeight: row.CurrentWeight, service: s}
	e.setTarget(row, compared)
	t.enterEndpoint(e)
	t.countLocal(e, 1)
	return e, nil
}

// makeRows makes the rows of an id, if needed. It grows the arrays by half, since the kernel takes
// as long for several segments as for one.
func (t *Tables) makeRows(id uint32) error {
	for _, a := range t.endpointRows() {
		if int(id) >= a.Len() {
			return rows.Grow(1+len(a.Segments())/2, t.endpointRows()...)
		}
	}
	return nil
}

// lackingRows returns the number of missing segments of rows for these endpoints.
func (t *Tables) lackingRows(endpoints int) (segments int) {
	for _, a := range t.endpointRows() {
		per := int(a.PerSegment())
		segments = max(segments, (endpoints-a.Len()+per-1)/per)
	}
	return segments
}

func (t *Tables) endpointRows() []*rows.Array {
	return []*rows.Array{t.arrays.Endpoints, t.arrays.EndpointStates.Shared, t.arrays.EndpointStates.PerCPU, t.arrays.EndpointTraffics, t.arrays.Handshakes.Shared, t.arrays.Handshakes.PerCPU}
}

// updateEndpoint sets where new connections to an endpoint go (one port for each of the service's
// ports, or one for all) and where they come from. Existing ones are unchanged.
func (t *Tables) updateEndpoint(e *endpoint, row bpf.EndpointTable, compared bool, undo *undoLog) error {
	was := *e
	if e.setTarget(row, compared); *e == was {
		return nil
	}
	undo.add(func() error {
		e.flags, e.source, e.sourceBits, e.addrBits = was.flags, was.source, was.sourceBits, was.addrBits
		return t.writeEndpoint(e)
	})
	if compared && was.flags&endpointCompared == 0 {
		t.newlyCompared = append(t.newlyCompared, e.id)
	}
	return t.writeEndpoint(e)
}

// setTarget sets where the endpoint's new connections go and come from, and whether its service
// compares its load with others'.
func (e *endpoint) setTarget(row bpf.EndpointTable, compared bool) {
	e.source, e.sourceBits, e.addrBits = row.Source, row.SourceBits, row.AddrBits
	e.flags = flagIf(row.Shift, endpointShift) | flagIf(row.Failed, endpointFailed) | flagIf(row.SNAT, endpointSNAT) | flagIf(compared, endpointCompared)
}

func flagIf(set bool, flag uint16) uint16 {
	if set {
		return flag
	}
	return 0
}

// has reports whether a flag is set.
func (e *endpoint) has(flag uint16) bool { return e.flags&flag != 0 }

func (t *Tables) writeEndpoint(e *endpoint) error {
	return t.writeEndpoints([]*endpoint{e}, 0)
}

// endpointRow returns the row of an endpoint as the packet path reads it.
func endpointRow(e *endpoint, flags uint16) bpf.TcEndpoint {
	row := bpf.TcEndpoint{
		Addr: e.addr, Port: e.port, Flags: endpointInUse | e.flags | flags, Service: e.service.id,
		Weight: e.currentWeight, Source: e.source, SourceBits: e.sourceBits, AddrBits: e.addrBits,
	}
	if e.has(endpointShift) {
		row.PortShift = bpf.Port(e.port) - bpf.Port(e.service.key.Port) // modulo 65,536, as the packet path adds it
	}
	return row
}

// writeEndpoints writes rows by one system call.
func (t *Tables) writeEndpoints(list []*endpoint, flags uint16) error {
	if len(list) == 0 {
		return nil
	}
	ids, values := make([]uint32, len(list)), make([]bpf.TcEndpoint, len(list))
	for i, e := range list {
		ids[i] = e.id
		values[i] = endpointRow(e, flags)
	}
	if err := rows.PutBatch(t.arrays.Endpoints, ids, values); err != nil {
		return fmt.Errorf("write endpoints: %w", err)
	}
	return nil
}

// clearEndpoint zeroes the counters of a row that had another owner.
func (t *Tables) clearEndpoint(id uint32) error {
	zero := make([]bpf.TcEndpointTraffic, ebpf.MustPossibleCPU())
	if err := t.arrays.EndpointTraffics.Put(id, zero); err != nil {
		return fmt.Errorf("clear traffic: %w", err)
	}
	if err := t.arrays.EndpointStates.Put(id, bpf.TcEndpointState{}); err != nil {
		return fmt.Errorf("clear counters: %w", err)
	}
	if err := t.arrays.Handshakes.Clear(id, len(zero)); err != nil {
		return fmt.Errorf("clear counters of handshakes: %w", err)
	}
	t.handshakes.bell.ForgetOutcomes(id)
	return nil
}

// replaceOrder ends the endpoints that are no longer in the service.
func (t *Tables) replaceOrder(s *service, order []*endpoint, want *bpf.ServiceTable) error {
	gone := s.order
	s.order = order
	if want.Parents != nil || s.extra != nil {
		s.makeExtras().parents = want.Parents
	}
	if len(gone) == 0 {
		return nil
	}
	stay := make(map[*endpoint]bool, len(order))
	for _, e := range order {
		stay[e] = true
	}
	gone = slices.DeleteFunc(gone, func(e *endpoint) bool { return stay[e] })
	return t.endEndpoints(gone, t.deadlineOfRemoval(want.Leave))
}

// putWeights writes the weights of endpoints. Call it after the service's row, whose slots then
// refer to no endpoint of weight 0. The weights serve selection by load, and keep a remembered
// client away from an endpoint that accepts no connections.
func (t *Tables) putWeights(order []*endpoint, want *bpf.ServiceTable, undo *undoLog) error {
	for i, e := range order {
		was := e.currentWeight
		if want.Endpoints[i].CurrentWeight == was {
			continue
		}
		undo.add(func() error {
			e.currentWeight = was
			return t.writeEndpoint(e)
		})
		e.currentWeight = want.Endpoints[i].CurrentWeight
		if err := t.writeEndpoint(e); err != nil {
			return err
		}
	}
	return nil
}

// Packets without a bit in the filter are passed on without looking for services and connections.
// So the filter must have all destinations and sources of packets of services and their
// connections: VIPs and endpoints, with their ports. For endpoints that open connections, and for
// their source addresses, it has all ports.

// addToFilter adds the keys that a service will need, before its rows are written.
func (t *Tables) addToFilter(want *bpf.ServiceTable) {
	keysOfVIP(want.Key, want.PortMax, t.filter.Add)
	for _, vip := range want.Secondary {
		key := want.Key
		key.Vip = vip
		keysOfVIP(key, want.PortMax, t.filter.Add)
		keysOfHelper(key, want.Flags, t.filter.Add)
	}
	for _, e := range want.Endpoints {
		keysOfEndpoint(e.Addr, e.Port, e.Shift || opensConnections(want.Flags), t.filter.Add)
	}
	if opensConnections(want.Flags) {
		keysOfSources(want.Key.Vip, want.SNAT, t.filter.Add)
	}
}

// filterKeys yields the keys of all existing rows, including endpoints that are ending.
func (t *Tables) filterKeys(add func(rows.FilterKey)) {
	for _, s := range t.services {
		keysOfVIP(s.key, s.portMax, add)
		for _, o := range s.extras().secondary {
			keysOfVIP(o.key, o.portMax, add)
			keysOfHelper(o.key, s.row.Flags, add)
		}
		if opensConnections(s.row.Flags) {
			keysOfSources(s.key.Vip, s.extras().snat, add)
		}
	}
	for _, e := range t.endpoints {
		if e != nil {
			keysOfEndpoint(e.addr, e.port, e.has(endpointShift) || opensConnections(e.service.row.Flags), add)
		}
	}
}

// keysOfVIP yields the keys of packets to a service. A service on every local address has a key for
// each of its ports, at any address. At a VIP, a range has the key of all ports.
func keysOfVIP(key bpf.TcServiceKey, last uint16, add func(rows.FilterKey)) {
	if !isAnyLocal(key.Vip) {
		if last > 0 {
			add(rows.AllPortsKey(key.Vip))
			return
		}
		add(rows.PortKey(key.Vip, key.Port))
		return
	}
	for port := uint32(bpf.Port(key.Port)); port <= max(uint32(last), uint32(bpf.Port(key.Port))); port++ {
		add(rows.PortKey(bpf.TcIpAddr{}, bpf.Port(uint16(port))))
	}
}

// keysOfEndpoint yields the keys of its answers, and of the connections that it opens.
func keysOfEndpoint(addr bpf.TcIpAddr, port uint16, allPorts bool, add func(rows.FilterKey)) {
	add(rows.PortKey(addr, port))
	if allPorts {
		add(rows.AllPortsKey(addr))
	}
}

// keysOfHelper yields the keys of a client's packets to related connections, at a further VIP.
func keysOfHelper(key bpf.TcServiceKey, flags uint16, add func(rows.FilterKey)) {
	if flags&serviceHelpers != 0 {
		add(rows.AllPortsKey(key.Vip))
	}
}

// keysOfSources yields the keys of answers to connections that endpoints open, to the VIP or one of
// the service's own addresses.
func keysOfSources(vip bpf.TcIpAddr, pool []bpf.TcIpAddr, add func(rows.FilterKey)) {
	add(rows.AllPortsKey(vip))
	for _, a := range pool {
		add(rows.AllPortsKey(a))
	}
}

// BeginSweep must be called before each sweep: the sweep may then collect the keys that connections
// need in the filter. quiesce waits for packets that have found removed rows; it returns false if
// it cannot.
func (t *Tables) BeginSweep(quiesce func() bool) {
	t.mu.Lock()
	started := t.filter.Start(t.filterKeys)
	t.mu.Unlock()
	if started && !quiesce() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.filter.Abort()
	}
}

// EndSweep must be called after a sweep that visited the whole table.
func (t *Tables) EndSweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.filter.Swept()
}
