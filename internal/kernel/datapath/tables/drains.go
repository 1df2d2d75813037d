package tables

import (
	"net/netip"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
)

// drains are the endpoints that users drain, by address.
type drains map[netip.Addr][]lb.Drain

// ends returns when connections of a drained endpoint end; of two drains, of its address and of its
// port, the one with the earlier deadline counts.
func (d drains) ends(at netip.AddrPort) (soonest bpf.Ends) {
	for _, drain := range d[at.Addr()] {
		if drain.Has(at.Addr(), at.Port()) && !drain.Deadline.IsZero() {
			soonest = sooner(soonest, bpf.Ends{At: drain.Deadline, Rate: drain.Rate, Why: "endpoint drained", Drain: drain.Key()})
		}
	}
	return soonest
}

// SetDrains sets which endpoints are drained, and until when. Connections of those that have
// left their services heed it at once, others too when a drain goes; when one comes, those of a
// service that has the endpoint do once it leads no new ones there: with its Apply.
func (t *Tables) SetDrains(list []lb.Drain) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drains = drains{}
	for _, d := range list {
		t.drains[d.Addr] = append(t.drains[d.Addr], d)
	}
	for id, ends := range t.ends {
		if !ends.drained.At.IsZero() {
			ends.drained = t.drains.ends(t.endpoint(id).at())
			t.setEnds(id, ends)
		}
	}
	if len(list) == 0 {
		return
	}
	for id, e := range t.ending {
		if ends := t.ends[id]; !e.service.deleted {
			ends.drained = t.drains.ends(e.at())
			t.setEnds(id, ends)
		}
	}
}
