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
	endpointShift  = uint16(bpf.TcEndpointFlagENDPOINT_SHIFT)
	endpointEndUDP = uint16(bpf.TcEndpointFlagENDPOINT_END_UDP)

	serviceSources   = uint16(bpf.TcServiceFlagSERVICE_SOURCES)
	serviceSecondary = uint16(bpf.TcServiceFlagSERVICE_SECONDARY)

	linkPeer   = uint32(bpf.TcLinkFlagLINK_PEER)
	linkLayer3 = uint32(bpf.TcLinkFlagLINK_LAYER3)
)

// tables is what the process knows of the rows it has written.
type tables struct {
	services  map[bpf.TcServiceKey]*service
	secondary map[bpf.TcServiceKey]*service // by the keys that they have besides their own
	endpoints map[uint32]*endpoint          // also those that are ending
	ending    map[uint32]*endpoint          // removed, some connections left
	hosts     uint32                        // services of every local address
	local     map[bpf.TcIpAddr]struct{}     // as in local_addresses
	// localEndpoints is how many have one of these addresses, localTold what the packet path knows of it.
	localEndpoints, localTold uint32
	egress                    map[bpf.TcEgressKey][]egress // who claims an address; the first has it
	egressTold                uint32                       // how many the packet path knows of
	vips                      map[bpf.TcIpAddr]bpf.TcVip
	clamped                   uint32 // services that limit segments
	ranged                    uint32 // services with a range of ports
	marked                    uint32 // services with a mark
	serviceIDs                ids
	endpointIDs               ids
	slots                     slotSpace
	retired                   retired
	persisting                bool // some service remembers clients, or did
	now                       func() time.Time
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
	mss     uint16         // as in mss_limits
	portMax uint16         // of its range, as the trie has it
	sources []netip.Prefix // as the trie has them
	persist uint32         // jiffies, as in persist_timeouts
	order   []*endpoint    // as the user wrote them
	of      []uint32       // as in the table
	ending  map[netip.AddrPort]*endpoint
	second  []*service // the same at further VIPs: of these, key and portMax alone count
	snat    int        // rows of snat_sources
	egress  bool       // its endpoints open connections outwards
	// egressKeys are the addresses that it claims.
	egressKeys map[bpf.TcEgressKey]bool
	retired    counters // of endpoints that are gone
	deleted    bool
}

// endpoint is a row of the endpoints map.
type endpoint struct {
	id      uint32
	at      netip.AddrPort
	weight  uint16
	shift   bool       // at is for the service's first port
	takes   uint32     // weight for new connections, as in the row
	source  netip.Addr // ours towards it, as in the row; zero: none
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
		if err := d.dropSecondary(t.Key); err != nil {
			return err
		}
		var err error
		if s, err = d.newService(t.Key); err != nil {
			return err
		}
	}
	order, fresh, err := d.putEndpoints(s, t)
	var slots slotRange
	sources := s.sources
	if err == nil {
		err = d.addSources(s, t.Sources)
	}
	if err == nil {
		slots, err = d.putRow(s, t, order)
	}
	if err != nil {
		return errors.Join(err, d.keepSources(s, sources), d.forsake(s, fresh, there))
	}
	d.tables.slots.put(s.slots)
	s.slots, s.name = slots, t.Name
	if err := d.trimSNAT(s, len(t.SNAT)); err != nil {
		return err
	}
	if err := d.putWeights(order, t); err != nil {
		return err
	}
	if !there {
		d.tables.services[t.Key] = s
		if err := d.countHost(t.Key, 1); err != nil {
			return err
		}
		if err := d.countService(t.Key, 1); err != nil {
			return err
		}
	}
	return errors.Join(d.putRange(s, t.PortMax), d.putSecondary(s, t.Secondary), d.keepSources(s, t.Sources), d.putEgress(s, t, order), d.replaceOrder(s, order, t.Of))
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
	s := &service{key: key, id: id}
	if used {
		s.persist = unknown
	}
	return s, nil
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
	if err := d.putPersist(s, t.Persist); err != nil {
		return slotRange{}, err
	}
	places := make([]uint32, len(t.Slots))
	for i, slot := range t.Slots {
		places[i] = order[slot].id
	}
	if err := d.putSNAT(s, t.SNAT); err != nil {
		return slotRange{}, err
	}
	slots, err := d.tables.slots.write(places)
	if err != nil {
		return slotRange{}, err
	}
	if err := d.putMSS(s, t.MSS); err != nil {
		return slotRange{}, err
	}
	row := bpf.TcService{
		Id: s.id, SlotCount: slots.count, SlotSegment: uint16(slots.segment), SlotOffset: uint16(slots.offset),
		Algorithm: t.Algorithm, Mode: t.Mode, SourceCount: uint32(len(t.SNAT)), PersistPrefix: uint32(t.PersistPrefix),
		PortMax: uint32(t.PortMax), Flags: t.Flags,
	}
	if len(t.Sources) > 0 {
		row.Flags |= serviceSources
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
			if e, err = d.putEndpoint(s, at, row); err != nil {
				return nil, fresh, err
			}
			fresh = append(fresh, e)
		} else if err = d.shiftEndpoint(e, row.Shift); err != nil {
			return nil, fresh, err
		}
		if err := d.sourceEndpoint(e, row.Source); err != nil {
			return nil, fresh, err
		}
		e.weight = row.Weight
		order = append(order, e)
	}
	return order, fresh, errors.Join(d.followLocal(), d.writeEndpoints(fresh, 0))
}

// putEndpoint takes an endpoint back that was ending, or makes one. Its row is not written yet.
func (d *Datapath) putEndpoint(s *service, at netip.AddrPort, row bpf.EndpointTable) (*endpoint, error) {
	if e, ok := s.ending[at]; ok {
		e.takes, e.shift = row.Takes, row.Shift
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
	e := &endpoint{id: id, at: at, takes: row.Takes, shift: row.Shift, service: s}
	d.tables.endpoints[id] = e
	d.countLocal(e, 1)
	return e, nil
}

// shiftEndpoint has new connections go to a port for each of the service's ports, or all to one.
func (d *Datapath) shiftEndpoint(e *endpoint, shift bool) error {
	if e.shift == shift {
		return nil
	}
	e.shift = shift
	return d.writeEndpoint(e, 0)
}

func (d *Datapath) writeEndpoint(e *endpoint, flags uint16) error {
	return d.writeEndpoints([]*endpoint{e}, flags)
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
func (d *Datapath) writeEndpoints(list []*endpoint, flags uint16) error {
	if len(list) == 0 {
		return nil
	}
	ids, rows := make([]uint32, len(list)), make([]bpf.TcEndpoint, len(list))
	for i, e := range list {
		ids[i] = e.id
		rows[i] = endpointRow(e, flags)
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
func (d *Datapath) replaceOrder(s *service, order []*endpoint, of []uint32) error {
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
	return d.endEndpoints(gone, endpointEndUDP)
}
