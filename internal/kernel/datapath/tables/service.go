package tables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// Change is the desired state of a service. A nil Table deletes it.
type Change struct {
	Key   bpf.TcServiceKey
	Table *bpf.ServiceTable
}

// Apply applies changes in sequence, each atomically: a packet sees a service before or after its
// change. It returns an error for each failed change, and nil for each successful one. A failed
// service is unchanged, and may be retried independently.
//
// Connections of remaining endpoints are unaffected. TCP connections of endpoints that leave a
// service continue until they end by themselves; their UDP flows end, and so does everything of a
// deleted service. Applying the same state again changes nothing. The cost of a change depends only
// on the number of its service's endpoints.
func (t *Tables) Apply(changes []Change) []error {
	failed := make([]error, len(changes))
	for i, c := range changes {
		failed[i] = t.applyOne(c)
	}
	return failed
}

// applyOne holds the lock for one service only, so readers of counters need not wait for thousands.
func (t *Tables) applyOne(c Change) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.filter.Changed()
	if c.Table == nil {
		return t.deleteService(c.Key)
	}
	t.addToFilter(c.Table)
	err := t.putService(c.Table)
	if s := t.services[c.Key]; s != nil {
		t.handshakes.markChanged(s.userKey())
	}
	return err
}

// Reserve makes room for this many services and endpoints in one step, which takes the kernel no
// longer than room for one. It returns immediately; changes and readers wait until there is room.
// If it fails, the change that needs the room tries again and reports an error.
func (t *Tables) Reserve(services, endpoints int) {
	t.mu.Lock()
	segments, slots := t.lackingRows(min(endpoints, MaxEndpoints)), t.slots.MissingSegments(services, endpoints)
	if segments == 0 && slots == 0 {
		t.mu.Unlock()
		return
	}
	go func() {
		defer t.mu.Unlock()
		var growing sync.WaitGroup
		growing.Go(func() { _ = rows.Grow(segments, t.endpointRows()...) })
		growing.Go(func() { _ = t.slots.Add(slots) })
		growing.Wait()
	}()
}

// Services lists the keys of the services in the data path, without those of firewall rules.
func (t *Tables) Services() []bpf.TcServiceKey {
	t.mu.RLock()
	defer t.mu.RUnlock()
	keys := make([]bpf.TcServiceKey, 0, len(t.services))
	for k := range t.services {
		if !isOfRules(k) {
			keys = append(keys, k)
		}
	}
	return keys
}

// CurrentWeights returns the weights for new connections of a service's endpoints, or nil without
// such a service.
func (t *Tables) CurrentWeights(key bpf.TcServiceKey) map[netip.AddrPort]uint32 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := t.services[key]
	if s == nil {
		return nil
	}
	weights := make(map[netip.AddrPort]uint32, len(s.order))
	for _, e := range s.order {
		weights[e.at()] = e.currentWeight
	}
	return weights
}

// Receiving reports which endpoints of a service get new connections, in the user's order; ok is
// false if there is no such service. It reads no counters.
func (t *Tables) Receiving(key bpf.TcServiceKey) (receiving []bool, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := t.services[key]
	if s == nil {
		return nil, false
	}
	parents := s.extras().parents
	receiving = make([]bool, 0, len(s.order))
	for i, e := range s.order {
		if parents != nil {
			i = int(parents[i])
		}
		for i >= len(receiving) {
			receiving = append(receiving, false)
		}
		receiving[i] = receiving[i] || e.currentWeight > 0
	}
	return receiving, true
}

// undoLog is the functions that undo a failed change. A step adds its undo before it runs, as it
// may fail halfway.
type undoLog []func() error

func (u *undoLog) add(f func() error) { *u = append(*u, f) }

// run undoes all steps, the last one first.
func (u undoLog) run() error {
	var errs []error
	for _, v := range slices.Backward(u) {
		errs = append(errs, v())
	}
	return errors.Join(errs...)
}

// putService applies a table to a service: first the steps that can fail, then the steps that make
// it final.
func (t *Tables) putService(want *bpf.ServiceTable) error {
	var undo undoLog
	s, order, old, err := t.prepareService(want, &undo)
	if err != nil {
		return errors.Join(err, undo.run())
	}
	if old != s.slots() {
		t.slots.Put(old)
	}
	s.name = want.Name
	for i, e := range order {
		e.weight = want.Endpoints[i].Weight
	}
	if want.Tenths != s.extras().tenths {
		s.makeExtras().tenths = want.Tenths
	}
	return errors.Join(t.settleMSS(s), t.trimSNAT(s, len(want.SNAT)), t.trimSources(s, want), t.replaceOrder(s, order, want), t.putDeadlines(order, want))
}

// prepareService does the steps that can fail. old is the former range of the service's slots.
func (t *Tables) prepareService(want *bpf.ServiceTable, undo *undoLog) (s *service, order []*endpoint, old rows.Range, err error) {
	s, exists := t.services[want.Key]
	if !exists {
		if s, err = t.newService(want.Key, undo); err != nil {
			return nil, nil, old, err
		}
	}
	old = s.slots()
	if order, err = t.putEndpoints(s, want, exists, undo); err != nil {
		return nil, nil, old, err
	}
	slots, err := t.putSlots(s, want, order, undo)
	if err != nil {
		return nil, nil, old, err
	}
	for _, step := range []func() error{
		func() error { return t.putAttributes(s, want, undo) },
		func() error { return t.putQUIC(s, quicOf(s, want, order), undo) },
		func() error { return t.putSCTPVIPs(s, sctpVIPs(want), undo) },
		func() error { return t.putRow(s, t.rowOf(s, want, slots), exists, undo) },
		func() error { return t.putWeights(order, want, undo) },
		func() error { return t.registerService(s, exists, undo) },
		func() error { return t.putRange(s, want.PortMax, undo) },
		func() error { return t.putSecondary(s, want.Secondary, undo) },
		func() error { return t.putEgress(s, egressClaims(s, want, order), undo) },
		func() error { return t.putHelpers(s, want.Flags, order, undo) },
	} {
		if err = step(); err != nil {
			return nil, nil, old, err
		}
	}
	return s, order, old, nil
}

// newService assigns a service an id.
func (t *Tables) newService(key bpf.TcServiceKey, undo *undoLog) (*service, error) {
	if err := t.arrays.SNATUsages.Make(); err != nil {
		return nil, err
	}
	id, used, err := t.serviceIDs.Get()
	if err != nil {
		return nil, err
	}
	s := &service{key: key, id: id}
	undo.add(func() error {
		s.deleted = true
		t.releaseService(s)
		return nil
	})
	if err := t.putAttachments(id, t.attached.wanted[key]); err != nil {
		return nil, err
	}
	if used { // by a deleted service, perhaps of a process that was killed
		err := errors.Join(t.maps.ServiceStates.Put(id, bpf.TcServiceState{}), t.removed.put(id, counters{}),
			t.maps.IdleTimeouts.Put(id, uint32(0)), t.maps.PersistTimeouts.Put(id, uint32(0)), t.maps.MssLimits.Put(id, uint32(0)))
		if err != nil {
			return nil, fmt.Errorf("clear counters: %w", err)
		}
	}
	return s, nil
}

// putSlots writes the algorithm's table to an unused range, unless it exists already.
func (t *Tables) putSlots(s *service, want *bpf.ServiceTable, order []*endpoint, undo *undoLog) (rows.Range, error) {
	ids := make([]uint32, len(want.Slots))
	for i, slot := range want.Slots {
		ids[i] = order[slot].id
	}
	slots, err := t.slots.Write(ids, s.slots())
	if err == nil && slots != s.slots() {
		undo.add(func() error {
			t.slots.Put(slots)
			return nil
		})
	}
	return slots, err
}

// putAttributes writes everything that the service's row refers to except its endpoints.
func (t *Tables) putAttributes(s *service, want *bpf.ServiceTable, undo *undoLog) error {
	if err := t.putSources(s, want, undo); err != nil {
		return err
	}
	if err := t.putTimeouts(s, t.ticks(want.Idle), t.ticks(want.Persist), undo); err != nil {
		return err
	}
	if err := t.putSNAT(s, want.SNAT, undo); err != nil {
		return err
	}
	if err := t.putLimits(s, want.Limits, undo); err != nil {
		return err
	}
	return t.putMSS(s, want.MSS, undo)
}

func (t *Tables) rowOf(s *service, want *bpf.ServiceTable, slots rows.Range) bpf.TcService {
	row := bpf.TcService{
		Id: s.id, SlotCount: slots.Count, SlotSegment: uint16(slots.Segment), SlotOffset: uint16(slots.Offset),
		Algorithm: want.Algorithm, Mode: want.Mode, SourceCount: uint32(len(want.SNAT)), PersistPrefix: uint32(want.PersistPrefix),
		PortMax: uint32(want.PortMax), Flags: want.Flags,
	}
	if len(want.Sources) > 0 {
		row.Flags |= serviceSources
	}
	if len(s.extras().denied) > 0 { // including removed ones, until trimSources
		row.Flags |= serviceDenies
	}
	return row
}

// putRow replaces the row that packets look up, once everything that it refers to is written.
func (t *Tables) putRow(s *service, row bpf.TcService, exists bool, undo *undoLog) error {
	if !exists {
		if err := t.dropSecondary(s.key, undo); err != nil {
			return err
		}
	}
	old := s.row
	undo.add(func() error {
		s.row = old
		if !exists {
			return t.deleteRow(s.key)
		}
		return errors.Join(t.maps.Services.Put(s.key, old), t.putSecondary(s, s.secondaryVIPs(), &undoLog{}))
	})
	if err := t.expectDirectAnswers(row); err != nil {
		return err
	}
	if err := t.maps.Services.Put(s.key, row); err != nil {
		return fmt.Errorf("write service: %w", asErrFull(err))
	}
	s.row = row
	return nil
}

// expectDirectAnswers makes the packet path look for answers of endpoints that answer clients
// directly. It stays set after the first such service, whose connections outlive a change of its
// mode.
func (t *Tables) expectDirectAnswers(row bpf.TcService) error {
	if row.Mode != uint8(bpf.TcServiceModeMODE_DSR) {
		return nil
	}
	if err := t.vars.DirectAnswers.Set(uint32(1)); err != nil {
		return fmt.Errorf("expect direct answers: %w", err)
	}
	return nil
}

// asErrFull converts the kernel's error that a map has no room to ErrFull.
func asErrFull(err error) error {
	if errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("%w (%w)", ErrFull, err)
	}
	return err
}

func (t *Tables) deleteRow(key bpf.TcServiceKey) error {
	if err := rows.Delete(t.maps.Services, key); err != nil {
		return fmt.Errorf("delete service: %w", err)
	}
	return nil
}

// registerService registers a new service.
func (t *Tables) registerService(s *service, exists bool, undo *undoLog) error {
	if exists {
		return nil
	}
	t.services[s.key] = s
	undo.add(func() error {
		delete(t.services, s.key)
		return t.countService(s.key, -1)
	})
	return t.countService(s.key, 1)
}

// countService updates the variables that packets read before they look up a service: by is 1 for
// an added service, -1 for a removed one.
func (t *Tables) countService(key bpf.TcServiceKey, by int) error {
	v := t.count(key, by)
	if key.Ranged() || key.Mark != 0 || isAnyLocal(key.Vip) {
		if err := t.writeCounts(); err != nil {
			return err
		}
	}
	if v.Services == 0 {
		if err := rows.Delete(t.maps.Vips, key.Vip); err != nil {
			return fmt.Errorf("delete VIP: %w", err)
		}
		return nil
	}
	if err := t.maps.Vips.Put(key.Vip, v); err != nil {
		return fmt.Errorf("write VIP: %w", asErrFull(err))
	}
	return nil
}

// count updates the sums, and returns the VIP's.
func (t *Tables) count(key bpf.TcServiceKey, by int) bpf.TcVip {
	v := t.vips[key.Vip]
	n := uint32(by) // wraps for -1: subtracts
	v.Services += n
	if key.Ranged() {
		v.Ranges += n
		t.counts.ranged += n
		t.indexRange(key, by)
	}
	if key.Mark != 0 {
		t.counts.marked += n
	}
	if isAnyLocal(key.Vip) {
		t.counts.hosts += n
	}
	t.vips[key.Vip] = v
	if v.Services == 0 {
		delete(t.vips, key.Vip)
	}
	return v
}

// isAnyLocal reports whether a VIP stands for every local address.
func isAnyLocal(vip bpf.TcIpAddr) bool { return vip.Netip().IsUnspecified() }

// writeCounts writes the programs' counts of rare services.
func (t *Tables) writeCounts() error {
	for _, set := range t.countSets {
		if err := t.counts.write(set); err != nil {
			return err
		}
	}
	return nil
}

func (c counts) write(set map[string]*ebpf.Variable) error {
	for name, n := range map[string]uint32{"range_services": c.ranged, "marked_services": c.marked, "host_services": c.hosts} {
		if err := set[name].Set(n); err != nil {
			return fmt.Errorf("count services (%s): %w", name, err)
		}
	}
	return nil
}

// AddCounts makes another object's variables range_services, marked_services and host_services
// follow from now on.
func (t *Tables) AddCounts(set map[string]*ebpf.Variable) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.counts.write(set); err != nil {
		return err
	}
	t.countSets = append(t.countSets, set)
	return nil
}

// adoptVIPs repairs counts that an earlier process could not update.
func (t *Tables) adoptVIPs() error {
	have, err := rows.Read[bpf.TcIpAddr, bpf.TcVip](t.maps.Vips)
	if err != nil {
		return fmt.Errorf("read VIPs: %w", err)
	}
	if _, err := rows.Sync(t.maps.Vips, have, t.vips); err != nil {
		return fmt.Errorf("write VIPs: %w", err)
	}
	return nil
}
