package tables

import (
	"net/netip"
	"time"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/lb"
)

const (
	// leaveRate is how many TCP connections of an endpoint that has left its service end in a second: their clients dial again.
	leaveRate = 1000
	// deleteRate is the same where the service is deleted: nobody dials again.
	deleteRate = lb.EndRateMax

	removedWhy = "endpoint removed"
)

// End is an endpoint whose connections are to end now.
type End struct {
	bpf.Ends
	ID     uint32
	Active uint64 // connections in the table
	Addr   netip.AddrPort
}

// EndsDue lists the endpoints that have connections which are to end by now, and says when the next one is due; zero: none is known.
// It costs as much as there are endpoints whose connections end at some time.
func (t *Tables) EndsDue() (due []End, next time.Time, err error) {
	passed, next := t.endsPassed()
	t.mu.RLock()
	states := *t.arrays.EndpointStates // as it grows meanwhile
	t.mu.RUnlock()
	if len(passed) > fewEnding {
		err = t.eachState(func(ids []uint32, rows []bpf.TcEndpointState) {
			for i, id := range ids {
				if e, ok := passed[id]; ok && rows[i].Active > 0 {
					e.Active = rows[i].Active
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
		if e.Active = state.Active; e.Active > 0 {
			due = append(due, e)
		}
	}
	return due, next, nil
}

// endsPassed are those whose time has come, whether or not there is anything to end, and when that of the next one comes.
func (t *Tables) endsPassed() (passed map[uint32]End, next time.Time) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	now := t.now()
	passed = map[uint32]End{}
	for id, ends := range t.ends {
		if !ends.At.After(now) {
			passed[id] = End{Ends: ends, ID: id, Addr: t.endpoint(id).at()}
		} else if next.IsZero() || ends.At.Before(next) {
			next = ends.At
		}
	}
	return passed, next
}

// Ending tells whether an endpoint has left its service, and some connections were left.
func (t *Tables) Ending() bool { return t.anyEnding() }

func (t *Tables) endsNow() bpf.Ends {
	return bpf.Ends{At: t.now(), Rate: deleteRate, Why: "service deleted"}
}

// endsAtOnce is for all but TCP: flows that nobody ends.
func (t *Tables) endsAtOnce() bpf.Ends { return bpf.Ends{At: t.now(), Why: removedWhy} }

func (t *Tables) endsOfLeaving(l bpf.Leave) bpf.Ends {
	if !l.Ends {
		return bpf.Ends{}
	}
	return bpf.Ends{At: t.now().Add(l.After), Rate: leaveRate, Why: removedWhy}
}

// noteEnds says when connections of endpoints end that have left their service. A time that is sooner stays: that of a drain, say. It
// comes before the rows say that they have left, so that a process that is killed in between leaves nothing in silence.
func (t *Tables) noteEnds(list []*endpoint, ends bpf.Ends) error {
	for _, e := range list {
		own := ends
		if e.service.key.Protocol != uint8(lb.TCP) {
			own = t.endsAtOnce()
		}
		if was, ok := t.ends[e.id]; ok && !e.service.deleted && (own.At.IsZero() || was.At.Before(own.At)) {
			own = was
		}
		if own.At.IsZero() {
			continue
		}
		t.ends[e.id] = own
		if e.service.deleted || e.service.key.Protocol != uint8(lb.TCP) {
			continue // who adopts it knows
		}
		if err := t.endTimes.put(e, own); err != nil {
			return err
		}
	}
	return nil
}

// putEnds says when connections of endpoints end that a service has.
func (t *Tables) putEnds(order []*endpoint, want *bpf.ServiceTable) error {
	for i, e := range order {
		ends := want.Endpoints[i].Ends
		if ends.At.IsZero() {
			delete(t.ends, e.id)
		} else {
			t.ends[e.id] = ends
		}
		if err := t.endTimes.forget(e.id); err != nil { // it may have left, and come back
			return err
		}
	}
	return nil
}

// adoptEnds goes on with what an earlier process has begun. Connections of a deleted service end, whether or not that process could
// still say so.
func (t *Tables) adoptEnds() error {
	times, err := t.endTimes.all()
	if err != nil {
		return err
	}
	for id, e := range t.ending {
		row, ok := times[id]
		var ends bpf.Ends
		switch {
		case e.service.deleted:
			ends = t.endsNow()
		case ok && row.Of == e.sum():
			ends = row.ends()
		case e.service.key.Protocol != uint8(lb.TCP):
			ends = t.endsAtOnce()
		default:
			continue
		}
		t.ends[id] = ends
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
