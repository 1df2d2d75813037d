package tables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
)

// reapAtOnce is the number of rows freed before the lock is released.
const reapAtOnce = 256

// Reap frees the rows of endpoints that have left their services and have no connection left.
// First, quiesce waits for packets that have seen such an endpoint in its service and may open a
// connection; if it returns false, endpoints wait for a time instead. Then forget removes clients'
// records of these endpoints; frees reports whether there are any.
func (t *Tables) Reap(quiesce func() bool, forget func(frees bool) error) error {
	free, before, err := t.freeEndpoints(quiesce)
	if err != nil {
		return fmt.Errorf("find endpoints to free: %w", err)
	}
	if err := forget(len(free) > 0); err != nil {
		return err
	}
	for part := range slices.Chunk(free, reapAtOnce) {
		if err := t.reapSome(part, before); err != nil {
			return fmt.Errorf("free endpoints: %w", err)
		}
	}
	return nil
}

// freeEndpoints returns the endpoints that Reap may free, and when they were removed at the latest.
func (t *Tables) freeEndpoints(quiesce func() bool) (free []freeable, before time.Time, err error) {
	before = t.now()
	if !t.anyEnding() {
		return nil, before, nil
	}
	if !quiesce() {
		before = before.Add(-rows.Quarantine)
	}
	free, err = t.idleEnding(before)
	return free, before, err
}

func (t *Tables) anyEnding() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.ending) > 0
}

// fewEnding is the number of ending endpoints up to which they are read individually: with 100,000
// endpoints, that is faster than reading all.
const fewEnding = 256

// idleEnding lists endpoints that were removed before a time and have no connection.
func (t *Tables) idleEnding(before time.Time) (idle []freeable, err error) {
	if few, states, ok := t.fewEndedBefore(before); ok {
		for _, id := range few {
			var state bpf.TcEndpointState
			if err := states.Lookup(id, &state); err != nil {
				return nil, err
			}
			if state.Tracked == 0 {
				idle = append(idle, freeable{id, hasCounted(id, &state)})
			}
		}
		return idle, nil
	}
	err = t.eachState(func(ids []uint32, rows []bpf.TcEndpointState) {
		t.mu.RLock()
		defer t.mu.RUnlock()
		for i, id := range ids {
			if e := t.ending[id]; e != nil && e.ended <= before.Sub(t.opened) && rows[i].Tracked == 0 {
				idle = append(idle, freeable{id, hasCounted(id, &rows[i])})
			}
		}
	})
	return idle, err
}

// fewEndedBefore lists endpoints that were removed before a time; false: there are more than a few.
func (t *Tables) fewEndedBefore(before time.Time) (few []uint32, states loader.EndpointStates, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if len(t.ending) > fewEnding {
		return nil, states, false
	}
	for id, e := range t.ending {
		if e.ended <= before.Sub(t.opened) {
			few = append(few, id)
		}
	}
	return few, t.arrays.EndpointStates.Snapshot(), true
}

// freeable is an endpoint without connections.
type freeable struct {
	id      uint32
	counted bool // its counters are not all zero
}

// reapSome frees the rows that were not reused meanwhile.
func (t *Tables) reapSome(list []freeable, before time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	ids := make([]uint32, 0, len(list))
	heirs := map[*service]bool{}
	for _, f := range list {
		e := t.ending[f.id]
		if e == nil || e.ended > before.Sub(t.opened) {
			continue
		}
		if f.counted {
			c, err := t.readEndpoint(f.id)
			if err != nil {
				return err
			}
			t.removedTotal.add(c)
			if !e.service.deleted {
				e.service.makeExtras().removed.add(c)
				heirs[e.service] = true
			}
		}
		ids = append(ids, f.id)
		delete(t.ending, f.id)
		delete(t.deadlines, f.id)
		if err := t.endTimes.forget(f.id); err != nil {
			return err
		}
		t.endpoints[f.id] = nil
		t.countLocal(e, -1)
		delete(e.service.ending, e.at())
		t.endpointIDs.Put(f.id, f.counted)
		t.releaseService(e.service)
	}
	if len(t.ending) == 0 {
		t.ending = map[uint32]*endpoint{} // a map does not shrink
	}
	if len(ids) == 0 {
		return nil
	}
	t.filter.Changed()
	if err := t.removed.put(allRemoved, t.removedTotal); err != nil {
		return err
	}
	for s := range heirs {
		if err := t.removed.put(s.id, s.extras().removed); err != nil {
			return err
		}
	}
	return rows.PutBatch(t.arrays.Endpoints, ids, make([]bpf.TcEndpoint, len(ids)))
}

// eachState reads the connection counts of all endpoints, including ending ones, and of free rows.
func (t *Tables) eachState(f func([]uint32, []bpf.TcEndpointState)) error {
	t.mu.RLock()
	top, states := int(t.endpointIDs.Top()), t.arrays.EndpointStates.Snapshot()
	t.mu.RUnlock()
	return states.Each(top, f)
}

// An endpoint that leaves its service keeps its row, and so its address and its counters, until its
// last connection has ended; a deleted service keeps its id as long as it has such endpoints.
// ends.go determines when remaining TCP connections are ended; all others end immediately.

// endEndpoints marks endpoints as removed: their rows are freed after their last connection.
func (t *Tables) endEndpoints(list []*endpoint, deadline bpf.Deadline) error {
	now := t.now().Sub(t.opened)
	if err := t.recordDeadlines(list, deadline); err != nil {
		return err
	}
	for _, e := range list {
		s := e.service
		if s.ending == nil {
			s.ending = map[netip.AddrPort]*endpoint{}
		}
		e.ended = now
		e.currentWeight = 0
		s.ending[e.at()] = e
		t.ending[e.id] = e
	}
	return t.writeEndpoints(list, endpointRemoved)
}

// deleteService first removes the rows by which packets find the service. From then on it is
// deleted: rows that cannot be removed are reported, and found by the next start.
func (t *Tables) deleteService(key bpf.TcServiceKey) error {
	s, ok := t.services[key]
	if !ok {
		return nil
	}
	var undo undoLog
	if err := t.putSecondary(s, nil, &undo); err != nil {
		return errors.Join(err, undo.run())
	}
	if err := t.deleteRow(key); err != nil {
		return errors.Join(err, undo.run())
	}
	delete(t.services, key)
	s.deleted = true
	var never undoLog
	errs := []error{
		t.countService(key, -1), t.putRange(s, 0, &never), t.keepSources(s, allowedSources, nil), t.keepSources(s, deniedSources, nil), t.putEgress(s, nil, &never), t.dropHelpers(s),
		t.trimSNAT(s, 0), t.putTimeouts(s, 0, 0, &never), t.putMSS(s, 0, &never), t.settleMSS(s),
		t.putLimits(s, bpf.Limits{}, &never), t.putQUIC(s, quic{}, &never), t.putSCTPVIPs(s, bpf.TcSctpVipList{}, &never), t.putAttachments(s.id, bpf.TcAttachments{}),
	}
	for _, e := range s.ending {
		s.order = append(s.order, e)
	}
	errs = append(errs, t.endEndpoints(s.order, t.deadlineOfDeletion()))
	t.slots.Put(s.slots())
	s.order = nil
	t.releaseService(s)
	return errors.Join(errs...)
}

// releaseService releases a deleted service's id when none of its endpoints needs it any more.
func (t *Tables) releaseService(s *service) {
	if s.deleted && len(s.ending) == 0 {
		t.serviceIDs.Put(s.id, true)
	}
}
