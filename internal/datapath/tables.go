package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/datapath/bpf"
)

const (
	maxServices  = 65536
	maxEndpoints = 262144

	endpointInUse  = uint16(bpf.TcEndpointFlagENDPOINT_IN_USE)
	endpointEndTCP = uint16(bpf.TcEndpointFlagENDPOINT_END_TCP)
	endpointEndUDP = uint16(bpf.TcEndpointFlagENDPOINT_END_UDP)

	linkPeer   = uint32(bpf.TcLinkFlagLINK_PEER)
	linkLayer3 = uint32(bpf.TcLinkFlagLINK_LAYER3)
)

// tables is what the process knows of the rows it has written.
type tables struct {
	services    map[bpf.TcServiceKey]*service
	endpoints   map[uint32]*endpoint // also those that are ending
	ending      map[uint32]*endpoint // removed, some connections left
	vips        map[bpf.TcIpAddr]uint32
	serviceIDs  ids
	endpointIDs ids
	slots       slotSpace
	retired     retired
	now         func() time.Time
}

func (t *tables) close() {
	t.slots.close()
	t.retired.close()
}

// service is a row of the services map and what hangs on it.
type service struct {
	key     bpf.TcServiceKey
	id      uint32
	name    string
	slots   slotRange
	order   []*endpoint // as the user wrote them
	ending  map[netip.AddrPort]*endpoint
	retired counters // of endpoints that are gone
	deleted bool
}

// endpoint is a row of the endpoints map.
type endpoint struct {
	id      uint32
	at      netip.AddrPort
	weight  uint16
	service *service
	ended   time.Time // when it was taken out of its service
}

// Change is a service as it shall be. Table nil: it shall not be.
type Change struct {
	Key   bpf.TcServiceKey
	Table *bpf.ServiceTable
}

// Apply makes the tables what the changes say, one after the other and each atomically: a packet sees a service
// as it was or as it shall be. Connections of endpoints that stay are left alone. TCP connections of endpoints that
// are removed from a service go on until they end by themselves, their UDP flows are ended, and so is all that
// belongs to a deleted service. Applying the same again changes nothing. A service that fails is as it was, and does
// not keep those behind it from being applied.
//
// Each change costs as much as its own service has endpoints, whatever else there is.
func (d *Datapath) Apply(changes []Change) error {
	var failed []error
	for _, c := range changes {
		if err := d.applyOne(c); err != nil {
			failed = append(failed, fmt.Errorf("service %s: %w", c.Key, err))
		}
	}
	const told = 3
	if n := len(failed); n > told {
		failed = append(failed[:told], fmt.Errorf("and %d services more", n-told))
	}
	return errors.Join(failed...)
}

// applyOne holds the lock for one service only: readers of counters need not wait for thousands.
func (d *Datapath) applyOne(c Change) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.Table == nil {
		return d.deleteService(c.Key)
	}
	return d.putService(c.Table)
}

// Services lists the keys of the services in the data path.
func (d *Datapath) Services() []bpf.TcServiceKey {
	d.mu.RLock()
	defer d.mu.RUnlock()
	keys := make([]bpf.TcServiceKey, 0, len(d.tables.services))
	for k := range d.tables.services {
		keys = append(keys, k)
	}
	return keys
}

func (d *Datapath) putService(t *bpf.ServiceTable) error {
	s, there := d.tables.services[t.Key]
	if !there {
		var err error
		if s, err = d.newService(t.Key); err != nil {
			return err
		}
	}
	order, fresh, err := d.putEndpoints(s, t)
	var slots slotRange
	if err == nil {
		slots, err = d.putRow(s, t, order)
	}
	if err != nil {
		return errors.Join(err, d.forsake(s, fresh, there))
	}
	d.tables.slots.put(s.slots)
	s.slots, s.name = slots, t.Name
	if !there {
		d.tables.services[t.Key] = s
		if err := d.countVIP(t.Key.Vip, 1); err != nil {
			return err
		}
	}
	return d.replaceOrder(s, order)
}

func (d *Datapath) newService(key bpf.TcServiceKey) (*service, error) {
	id, used, err := d.tables.serviceIDs.get()
	if err != nil {
		return nil, err
	}
	if used {
		err := errors.Join(d.obj.ServiceStates.Put(id, bpf.TcServiceState{}), d.tables.retired.put(id, counters{}))
		if err != nil {
			d.tables.serviceIDs.put(id, true)
			return nil, fmt.Errorf("clear counters: %w", err)
		}
	}
	return &service{key: key, id: id}, nil
}

// putRow replaces the row that packets look up, once all that it leads to is there.
func (d *Datapath) putRow(s *service, t *bpf.ServiceTable, order []*endpoint) (slotRange, error) {
	var idle uint32
	if t.Idle > 0 {
		idle = d.jiffies(t.Idle)
	}
	if err := d.obj.IdleTimeouts.Put(s.id, idle); err != nil {
		return slotRange{}, fmt.Errorf("write idle timeout: %w", err)
	}
	places := make([]uint32, len(t.Slots))
	for i, slot := range t.Slots {
		places[i] = order[slot].id
	}
	slots, err := d.tables.slots.write(places)
	if err != nil {
		return slotRange{}, err
	}
	row := bpf.TcService{
		Id: s.id, SlotCount: slots.count, SlotSegment: uint16(slots.segment), SlotOffset: uint16(slots.offset),
	}
	if err := d.obj.Services.Put(t.Key, row); err != nil {
		d.tables.slots.put(slots)
		return slotRange{}, fmt.Errorf("write service: %w", err)
	}
	return slots, nil
}

// putEndpoints gives every endpoint of the table a row: the one it has, one that was ending, or a new one. fresh
// are those that were not in the service before.
func (d *Datapath) putEndpoints(s *service, t *bpf.ServiceTable) (order, fresh []*endpoint, err error) {
	have := make(map[netip.AddrPort]*endpoint, len(s.order))
	for _, e := range s.order {
		have[e.at] = e
	}
	order = make([]*endpoint, 0, len(t.Endpoints))
	for _, row := range t.Endpoints {
		at := bpf.AddrPort(row.Addr, row.Port)
		e, ok := have[at]
		if !ok {
			if e, err = d.putEndpoint(s, at); err != nil {
				return nil, fresh, err
			}
			fresh = append(fresh, e)
		}
		e.weight = row.Weight
		order = append(order, e)
	}
	return order, fresh, d.writeEndpoints(fresh, 0)
}

// putEndpoint takes an endpoint back that was ending, or makes one. Its row is not written yet.
func (d *Datapath) putEndpoint(s *service, at netip.AddrPort) (*endpoint, error) {
	if e, ok := s.ending[at]; ok {
		delete(s.ending, at)
		delete(d.tables.ending, e.id)
		return e, nil
	}
	id, used, err := d.tables.endpointIDs.get()
	if err != nil {
		return nil, err
	}
	if used {
		if err := d.clearEndpoint(id); err != nil {
			d.tables.endpointIDs.put(id, true)
			return nil, err
		}
	}
	e := &endpoint{id: id, at: at, service: s}
	d.tables.endpoints[id] = e
	return e, nil
}

// writeEndpoints writes rows by one system call.
func (d *Datapath) writeEndpoints(list []*endpoint, flags uint16) error {
	if len(list) == 0 {
		return nil
	}
	ids, rows := make([]uint32, len(list)), make([]bpf.TcEndpoint, len(list))
	for i, e := range list {
		ids[i] = e.id
		rows[i] = bpf.TcEndpoint{
			Addr: bpf.Addr(e.at.Addr()), Port: bpf.Port(e.at.Port()), Flags: endpointInUse | flags, Service: e.service.id,
		}
	}
	if _, err := d.obj.Endpoints.BatchUpdate(ids, rows, nil); err != nil {
		return fmt.Errorf("write endpoints: %w", err)
	}
	return nil
}

// clearEndpoint zeroes the counters of a row that had another owner.
func (d *Datapath) clearEndpoint(id uint32) error {
	zero := make([]bpf.TcEndpointTraffic, ebpf.MustPossibleCPU())
	if err := d.obj.EndpointTraffics.Put(id, zero); err != nil {
		return fmt.Errorf("clear traffic: %w", err)
	}
	if err := d.obj.EndpointStates.Put(id, bpf.TcEndpointState{}); err != nil {
		return fmt.Errorf("clear counters: %w", err)
	}
	return nil
}

// replaceOrder ends the endpoints that are no longer in the service.
func (d *Datapath) replaceOrder(s *service, order []*endpoint) error {
	gone := s.order
	s.order = order
	if len(gone) == 0 {
		return nil
	}
	stay := make(map[*endpoint]bool, len(order))
	for _, e := range order {
		stay[e] = true
	}
	gone = slices.DeleteFunc(gone, func(e *endpoint) bool { return stay[e] })
	return d.endEndpoints(gone, endpointEndUDP)
}

func (d *Datapath) countVIP(vip bpf.TcIpAddr, by int) error {
	n := uint32(int(d.tables.vips[vip]) + by)
	d.tables.vips[vip] = n
	if n == 0 {
		delete(d.tables.vips, vip)
		if err := d.obj.Vips.Delete(vip); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete VIP: %w", err)
		}
		return nil
	}
	if err := d.obj.Vips.Put(vip, n); err != nil {
		return fmt.Errorf("write VIP: %w", err)
	}
	return nil
}
