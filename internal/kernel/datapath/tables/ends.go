package tables

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"loxilb/internal/host/monotime"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb"
)

const (
	// leaveRate is the number of TCP connections per second that end when an endpoint leaves
	// its service: their clients reconnect.
	leaveRate = 1000
	// deleteRate is the number per second when the service is deleted: no client can reconnect.
	deleteRate = lb.MaxEndRate

	removedWhy = "endpoint removed"
)

// DueEndpoint is an endpoint whose connections end now.
type DueEndpoint struct {
	bpf.Deadline
	ID      uint32
	Tracked uint64 // connections in the table
	Addr    netip.AddrPort
}

// deadlines are the times at which connections of an endpoint end, by reason: the earliest counts.
type deadlines struct {
	left    bpf.Deadline // because it has left its service
	failed  bpf.Deadline // because it is down, or was down and ending when it left
	drained bpf.Deadline
}

func (e deadlines) earliest() bpf.Deadline { return earlier(e.stored(), e.drained) }

// stored returns the deadline without drains, which are stored separately.
func (e deadlines) stored() bpf.Deadline { return earlier(e.left, e.failed) }

func earlier(a, b bpf.Deadline) bpf.Deadline {
	if a.At.IsZero() || !b.At.IsZero() && b.At.Before(a.At) {
		return b
	}
	return a
}

// setDeadlines stores the deadlines of an endpoint, or removes them if none is set.
func (t *Tables) setDeadlines(id uint32, e deadlines) {
	if e.earliest().At.IsZero() {
		delete(t.deadlines, id)
	} else {
		t.deadlines[id] = e
	}
}

// DueEndpoints lists the endpoints with connections to end now, and returns when the next one is
// due; zero: none is known. The cost grows with the number of endpoints that have a deadline.
func (t *Tables) DueEndpoints() (due []DueEndpoint, next time.Time, err error) {
	passed, next := t.passedDeadlines()
	t.mu.RLock()
	states := t.arrays.EndpointStates.Snapshot()
	t.mu.RUnlock()
	if len(passed) > fewEnding {
		err = t.eachState(func(ids []uint32, rows []bpf.TcEndpointState) {
			for i, id := range ids {
				if e, ok := passed[id]; ok && rows[i].Tracked > 0 {
					e.Tracked = rows[i].Tracked
					due = append(due, e)
				}
			}
		})
		return due, next, err
	}
	for id, e := range passed {
		var state bpf.TcEndpointState
		if err := states.Lookup(id, &state); err != nil {
			return nil, next, err
		}
		if e.Tracked = state.Tracked; e.Tracked > 0 {
			due = append(due, e)
		}
	}
	return due, next, nil
}

// passedDeadlines returns the endpoints that are due, with or without connections, and the time of
// the next one.
func (t *Tables) passedDeadlines() (passed map[uint32]DueEndpoint, next time.Time) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	now := t.now()
	passed = map[uint32]DueEndpoint{}
	for id, e := range t.deadlines {
		deadline := e.earliest()
		if !deadline.At.After(now) {
			passed[id] = DueEndpoint{Deadline: deadline, ID: id, Addr: t.endpoint(id).at()}
		} else if next.IsZero() || deadline.At.Before(next) {
			next = deadline.At
		}
	}
	return passed, next
}

// Ending reports whether a removed endpoint still had connections.
func (t *Tables) Ending() bool { return t.anyEnding() }

func (t *Tables) deadlineOfDeletion() bpf.Deadline {
	return bpf.Deadline{At: t.now(), Rate: deleteRate, Why: "service deleted"}
}

// immediateDeadline is for protocols without a handshake, whose flows have no end.
func (t *Tables) immediateDeadline() bpf.Deadline { return bpf.Deadline{At: t.now(), Why: removedWhy} }

func (t *Tables) deadlineOfRemoval(l bpf.EndMode) bpf.Deadline {
	if !l.Ends {
		return bpf.Deadline{}
	}
	return bpf.Deadline{At: t.now().Add(l.After), Rate: leaveRate, Why: removedWhy}
}

// recordDeadlines records when connections of removed endpoints end. It must precede the rows'
// removal flag, so nothing is unrecorded if the process is killed in between.
func (t *Tables) recordDeadlines(list []*endpoint, deadline bpf.Deadline) error {
	for _, e := range list {
		if e.service.deleted {
			t.deadlines[e.id] = deadlines{left: deadline} // for an adopting process
			continue
		}
		own := t.deadlines[e.id]
		if own.failed.At.After(t.now()) {
			own.failed = bpf.Deadline{} // it is no longer probed, and may be up again
		}
		own.drained = t.drains.deadline(e.at())
		if !lb.Protocol(e.service.key.Protocol).HasHandshake() {
			own.left = t.immediateDeadline()
			t.deadlines[e.id] = own // for an adopting process
			continue
		}
		own.left = earlier(own.left, deadline)
		t.setDeadlines(e.id, own)
		if stored := own.stored(); !stored.At.IsZero() {
			if err := t.endTimes.put(e, stored); err != nil {
				return err
			}
		}
	}
	return nil
}

// putDeadlines records when connections of the endpoints in a service's table end.
func (t *Tables) putDeadlines(order []*endpoint, want *bpf.ServiceTable) error {
	for i, e := range order {
		own := deadlines{failed: want.Endpoints[i].Deadline}
		if want.Endpoints[i].CurrentWeight == 0 {
			own.drained = t.drains.deadline(e.at())
		}
		t.setDeadlines(e.id, own)
		if err := t.endTimes.forget(e.id); err != nil { // it may have left, and returned
			return err
		}
	}
	return nil
}

// adoptDeadlines adopts the deadlines that an earlier process has recorded. Connections of a
// deleted service end, whether or not that process could record it.
func (t *Tables) adoptDeadlines() error {
	times, err := t.endTimes.all()
	if err != nil {
		return err
	}
	for id, e := range t.ending {
		row, ok := times[id]
		var deadline bpf.Deadline
		switch {
		case e.service.deleted:
			deadline = t.deadlineOfDeletion()
		case ok && row.Of == e.sum():
			deadline = row.deadline()
		case !lb.Protocol(e.service.key.Protocol).HasHandshake():
			deadline = t.immediateDeadline()
		default:
			continue
		}
		t.deadlines[id] = deadlines{left: deadline}
		if !e.service.deleted {
			delete(times, id)
		}
	}
	for id := range times {
		if err := t.endTimes.forget(id); err != nil {
			return err
		}
	}
	return nil
}

// endTimes store when the connections of endpoints that have left their services end, so a
// restart can continue: a map by endpoint id, pinned with the others. Like removedCounters, packets
// do not use it, and without pins there is no map.
type endTimes struct {
	m   *ebpf.Map
	has map[uint32]struct{} // ids that have a row
}

// endTime is bpf.Deadline in the layout of the map.
type endTime struct {
	At   int64 // nanoseconds since the machine was started: the map does not live longer
	Rate uint32
	Of   uint32 // endpoint.sum(): a process without this map may have assigned the id to another endpoint
}

func (t endTime) deadline() bpf.Deadline {
	left := min(time.Duration(t.At)-monotime.Uptime(), lb.MaxDrainTime)
	return bpf.Deadline{At: time.Now().Add(left), Rate: int(t.Rate), Why: removedWhy}
}

// sum distinguishes an endpoint from others that have had its id.
func (e *endpoint) sum() uint32 {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, e.service.id, e.at())
	return h.Sum32()
}

// openEndTimes opens the map pinned in dir, or makes it.
func openEndTimes(dir string) (endTimes, error) {
	m, err := ebpf.NewMapWithOptions(&ebpf.MapSpec{
		Name: "end_uptimes", Type: ebpf.Hash, KeySize: 4, ValueSize: 16, MaxEntries: uint32(MaxEndpoints),
		Flags: unix.BPF_F_NO_PREALLOC, Pinning: ebpf.PinByName,
	}, ebpf.MapOptions{PinPath: dir})
	if err != nil {
		return endTimes{}, fmt.Errorf("open map of ends of connections: %w", err)
	}
	return endTimes{m, map[uint32]struct{}{}}, nil
}

// put stores when connections of an endpoint end.
func (t endTimes) put(e *endpoint, deadline bpf.Deadline) error {
	if t.m == nil {
		return nil
	}
	t.has[e.id] = struct{}{}
	at := monotime.Uptime() + time.Until(deadline.At)
	if err := t.m.Put(e.id, endTime{int64(at), uint32(deadline.Rate), e.sum()}); err != nil {
		return fmt.Errorf("record when connections end: %w", err)
	}
	return nil
}

// forget undoes put.
func (t endTimes) forget(id uint32) error {
	if _, has := t.has[id]; !has {
		return nil
	}
	delete(t.has, id)
	if err := rows.Delete(t.m, id); err != nil {
		return fmt.Errorf("forget when connections end: %w", err)
	}
	return nil
}

// all returns the stored times.
func (t endTimes) all() (map[uint32]endTime, error) {
	all := map[uint32]endTime{}
	err := rows.EachBatch(t.m, rows.All, func(ids []uint32, rows []endTime) {
		for i, row := range rows {
			t.has[ids[i]] = struct{}{}
			all[ids[i]] = row
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read when connections end: %w", err)
	}
	return all, nil
}

func (t endTimes) close() {
	if t.m != nil {
		_ = t.m.Close() // it stays pinned
	}
}

// drains are the endpoints that users drain, by address.
type drains map[netip.Addr][]lb.Drain

// deadline returns when connections of a drained endpoint end. If both its address and its port are
// drained, the earlier deadline counts.
func (d drains) deadline(at netip.AddrPort) (soonest bpf.Deadline) {
	for _, drain := range d[at.Addr()] {
		if drain.Matches(at.Addr(), at.Port()) && !drain.Deadline.IsZero() {
			soonest = earlier(soonest, bpf.Deadline{At: drain.Deadline, Rate: drain.Rate, Why: "endpoint drained", Drain: drain.Key()})
		}
	}
	return soonest
}

// SetDrains sets the drained endpoints and their deadlines. It takes effect immediately for
// connections of endpoints that have left their services, and for ended drains. A new drain takes
// effect on a service's endpoint with the service's Apply, which stops new connections to it.
func (t *Tables) SetDrains(list []lb.Drain) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drains = drains{}
	for _, d := range list {
		t.drains[d.Addr] = append(t.drains[d.Addr], d)
	}
	for id, own := range t.deadlines {
		if !own.drained.At.IsZero() {
			own.drained = t.drains.deadline(t.endpoint(id).at())
			t.setDeadlines(id, own)
		}
	}
	if len(list) == 0 {
		return
	}
	for id, e := range t.ending {
		if own := t.deadlines[id]; !e.service.deleted {
			own.drained = t.drains.deadline(e.at())
			t.setDeadlines(id, own)
		}
	}
}
