package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

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
}

func (t *tables) close() { t.slots.close() }

// service is a row of the services map and what hangs on it.
type service struct {
	key     bpf.TcServiceKey
	id      uint32
	name    string
	slots   slotRange
	order   []*endpoint // as the user wrote them
	rows    int         // endpoints that have this id, ending ones included
	retired counters    // of endpoints that are gone
	deleted bool
}

// endpoint is a row of the endpoints map.
type endpoint struct {
	id      uint32
	at      netip.AddrPort
	weight  uint16
	service *service
}

// Change is a service as it shall be. Table nil: it shall not be.
type Change struct {
	Key   bpf.TcServiceKey
	Table *bpf.ServiceTable
}

// Apply makes the tables what the changes say, each service atomically: a packet sees it as it was or as it
// shall be. Connections of endpoints that stay are left alone. TCP connections of endpoints that are removed
// from a service go on until they end by themselves, their UDP flows are ended, and so is all that belongs to a
// deleted service. Applying the same again changes nothing. The first error stops it.
func (d *Datapath) Apply(changes []Change) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range changes {
		var err error
		if c.Table == nil {
			err = d.deleteService(c.Key)
		} else {
			err = d.putService(c.Table)
		}
		if err != nil {
			return fmt.Errorf("service %s: %w", c.Key, err)
		}
	}
	return nil
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
	s, ok := d.tables.services[t.Key]
	if !ok {
		id, used, err := d.tables.serviceIDs.get()
		if err != nil {
			return err
		}
		if used {
			if err := d.obj.ServiceStates.Put(id, bpf.TcServiceState{}); err != nil {
				return fmt.Errorf("clear counters: %w", err)
			}
		}
		s = &service{key: t.Key, id: id}
	}
	s.name = t.Name
	if err := d.setIdle(s, t); err != nil {
		return err
	}
	order, err := d.putEndpoints(s, t)
	if err != nil {
		return err
	}
	slots, err := d.writeSlots(t, order)
	if err != nil {
		return err
	}
	row := bpf.TcService{
		Id: s.id, SlotCount: slots.count, SlotSegment: uint16(slots.segment), SlotOffset: uint16(slots.offset),
	}
	if err := d.obj.Services.Put(t.Key, row); err != nil {
		return fmt.Errorf("write service: %w", err)
	}
	d.tables.slots.put(s.slots)
	s.slots = slots
	if !ok {
		d.tables.services[t.Key] = s
		if err := d.countVIP(t.Key.Vip, 1); err != nil {
			return err
		}
	}
	return d.replaceOrder(s, order)
}

func (d *Datapath) setIdle(s *service, t *bpf.ServiceTable) error {
	var idle uint32
	if t.Idle > 0 {
		idle = d.jiffies(t.Idle)
	}
	if err := d.obj.IdleTimeouts.Put(s.id, idle); err != nil {
		return fmt.Errorf("write idle timeout: %w", err)
	}
	return nil
}

// putEndpoints gives every endpoint of the table a row: the one it has, one that was ending, or a new one.
func (d *Datapath) putEndpoints(s *service, t *bpf.ServiceTable) ([]*endpoint, error) {
	have := make(map[netip.AddrPort]*endpoint, len(s.order))
	for _, e := range s.order {
		have[e.at] = e
	}
	for _, e := range d.tables.ending {
		if e.service == s {
			have[e.at] = e
		}
	}
	order := make([]*endpoint, 0, len(t.Endpoints))
	for _, row := range t.Endpoints {
		e, ok := have[bpf.AddrPort(row.Addr, row.Port)]
		if !ok {
			id, used, err := d.tables.endpointIDs.get()
			if err != nil {
				return nil, err
			}
			if used {
				if err := d.clearEndpoint(id); err != nil {
					return nil, err
				}
			}
			e = &endpoint{id: id, at: bpf.AddrPort(row.Addr, row.Port), service: s}
			s.rows++
			d.tables.endpoints[id] = e
		}
		if _, ending := d.tables.ending[e.id]; ending || !ok {
			if err := d.writeEndpoint(e, 0); err != nil {
				return nil, err
			}
			delete(d.tables.ending, e.id)
		}
		e.weight = row.Weight
		order = append(order, e)
	}
	return order, nil
}

func (d *Datapath) writeEndpoint(e *endpoint, flags uint16) error {
	row := bpf.TcEndpoint{
		Addr: bpf.Addr(e.at.Addr()), Port: bpf.Port(e.at.Port()), Flags: endpointInUse | flags, Service: e.service.id,
	}
	if err := d.obj.Endpoints.Put(e.id, row); err != nil {
		return fmt.Errorf("write endpoint %s: %w", e.at, err)
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

func (d *Datapath) writeSlots(t *bpf.ServiceTable, order []*endpoint) (slotRange, error) {
	places := make([]uint32, len(t.Slots))
	for i, s := range t.Slots {
		places[i] = order[s].id
	}
	return d.tables.slots.write(places)
}

// replaceOrder ends the endpoints that are no longer in the service.
func (d *Datapath) replaceOrder(s *service, order []*endpoint) error {
	for _, e := range s.order {
		if !slices.Contains(order, e) {
			if err := d.endEndpoint(e, endpointEndUDP); err != nil {
				return err
			}
		}
	}
	s.order = order
	return nil
}

// endEndpoint lets an endpoint's row go once its connections have: those that flags name are ended by the
// next sweep, the others end in their own time.
func (d *Datapath) endEndpoint(e *endpoint, flags uint16) error {
	d.tables.ending[e.id] = e
	return d.writeEndpoint(e, flags)
}

func (d *Datapath) deleteService(key bpf.TcServiceKey) error {
	s, ok := d.tables.services[key]
	if !ok {
		return nil
	}
	if err := d.obj.Services.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete service: %w", err)
	}
	delete(d.tables.services, key)
	s.deleted = true
	if err := d.countVIP(key.Vip, -1); err != nil {
		return err
	}
	for _, e := range d.tables.endpoints {
		if e.service != s {
			continue
		}
		if err := d.endEndpoint(e, endpointEndTCP|endpointEndUDP); err != nil {
			return err
		}
	}
	d.tables.slots.put(s.slots)
	s.slots, s.order = slotRange{}, nil
	d.releaseService(s)
	return nil
}

// releaseService gives a deleted service's id back when none of its endpoints needs it any more.
func (d *Datapath) releaseService(s *service) {
	if s.deleted && s.rows == 0 {
		d.tables.serviceIDs.put(s.id)
	}
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

// reap frees the rows of ending endpoints whose last connection is gone.
func (d *Datapath) reap() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, e := range d.tables.ending {
		c, err := d.readEndpoint(id)
		if err != nil {
			return err
		}
		if c.active != 0 {
			continue
		}
		if err := d.obj.Endpoints.Put(id, bpf.TcEndpoint{}); err != nil {
			return fmt.Errorf("free endpoint %s: %w", e.at, err)
		}
		delete(d.tables.ending, id)
		delete(d.tables.endpoints, id)
		d.tables.endpointIDs.put(id)
		e.service.retired.add(c)
		e.service.rows--
		d.releaseService(e.service)
	}
	return nil
}
