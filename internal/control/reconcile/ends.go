package reconcile

import (
	"cmp"
	"slices"
	"time"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/health"
	"loxilb/internal/control/store"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
)

// failRate is how many TCP connections of an endpoint that is down end in a second.
const failRate = 1000

// putEnds says when connections of a service's endpoints end that are down: the service says what becomes of theirs. An endpoint that takes
// new connections keeps all.
func (s *Services) putEnds(service *lb.Service, table *bpf.ServiceTable) {
	serves := false
	for _, e := range table.Endpoints {
		serves = serves || e.Takes > 0
	}
	f := losses{probes: s.Health.probes, service: service}
	for i, e := range service.Endpoints {
		row := &table.Endpoints[i]
		if row.Takes > 0 {
			continue
		}
		if serves || f.isRefused(e) {
			row.Ends, row.Failed = f.of(e)
		}
	}
	s.unsure.again(service.Key, f.wait)
}

// losses are what becomes of the connections of a service's endpoints that are down, while others serve. New connections avoid an
// endpoint whatever the reason; those that are open are lost if it was wrong. So they end only if the endpoint is down for sure: as many
// probes in a row have failed as it takes, also of one of which nothing was known before; and meanwhile another endpoint of the
// service has answered. Else it may have been the way from here that was gone. Where none of those that serve could answer, the
// failures have to do.
type losses struct {
	probes    *probes
	service   *lb.Service
	witnesses *witnesses    // nil: not looked for yet
	wait      time.Duration // after which more is known; 0: nothing is waited for
}

// witnesses are what other endpoints of a service have to say about one that fails.
type witnesses struct {
	answered []health.Status // of those that answer
	asked    bool            // one that serves has a probe that can answer
}

// of says when an endpoint's connections end, and whether flows and handshakes that know it go elsewhere. TCP connections do not end for
// handshakes that fail, which say nothing of those that are open. Flows have no end that anybody could wait for: they move.
func (f *losses) of(e lb.Endpoint) (ends bpf.Ends, failed bool) {
	j := f.probes.standing(f.service, e)
	if j.refused != nil {
		return bpf.Ends{At: j.refusedSince, Rate: failRate, Why: "IPsec policy"}, true
	}
	tcp := f.service.Protocol == lb.TCP
	after, end := f.service.After(f.service.OnFail)
	if !tcp {
		after, end = 0, true
	}
	failed = j.down() && tcp // a handshake that comes about elsewhere costs nothing
	if !j.askedDown() || !end {
		return ends, failed
	}
	if !f.sure(&j.Status) {
		if j.Interval > 0 && (f.wait == 0 || j.Interval < f.wait) {
			f.wait = j.Interval
		}
		return ends, failed
	}
	return bpf.Ends{At: cmp.Or(j.AskedSince, time.Now()).Add(after), Rate: failRate, Why: "endpoint down"}, true
}

// isRefused reports whether a policy of IPsec refuses the endpoint's packets: its connections end,
// even if no other endpoint serves.
func (f *losses) isRefused(e lb.Endpoint) bool {
	r, _, ok := f.probes.policies.refusal(f.service, e)
	return ok && r.Whole
}

// sure tells whether it is the endpoint that has failed. An agent knows.
func (f *losses) sure(s *health.Status) bool {
	if s.Told {
		return true
	}
	if s.Failures < s.Fall {
		return false
	}
	if f.witnesses == nil {
		f.witnesses = f.findWitnesses()
	}
	return !f.witnesses.asked || slices.ContainsFunc(f.witnesses.answered, func(o health.Status) bool { return answeredWhile(&o, s) })
}

func (f *losses) findWitnesses() *witnesses {
	w := new(witnesses)
	for _, e := range f.service.Endpoints {
		j := f.probes.standing(f.service, e)
		if !j.known {
			continue
		}
		if j.Successes > 0 {
			w.answered = append(w.answered, j.Status)
		}
		w.asked = w.asked || e.Weight > 0 && !j.askedDown() && !j.Undecided
	}
	return w
}

// answeredWhile tells whether one has answered while the other one failed: for at least as long as there is between two of its probes.
func answeredWhile(one, failed *health.Status) bool {
	from, to := one.First, one.Last
	if failed.First.After(from) {
		from = failed.First
	}
	if failed.Last.Before(to) {
		to = failed.Last
	}
	return to.Sub(from) >= one.Interval
}

// unsure has services applied again of whose endpoints more will be known. The goroutine of the loop alone touches it.
type unsure struct {
	timers map[lb.Key]*time.Timer
	mark   func(...lb.Key)
}

// again has a service applied after a while; 0: no more.
func (u *unsure) again(k lb.Key, wait time.Duration) {
	if t := u.timers[k]; t != nil {
		t.Stop()
		delete(u.timers, k)
	}
	if wait > 0 {
		u.timers[k] = time.AfterFunc(wait, func() { u.mark(k) })
	}
}

// tellDrains has the data path know which endpoints are drained, also of those that have left their services.
func (s *Services) tellDrains(snapshot *store.Snapshot, changed []store.ID, all bool) {
	if all || slices.ContainsFunc(changed, func(id store.ID) bool { return id.Kind == desired.DrainKind }) {
		s.Tables.SetDrains(slices.Collect(s.Desired.Drains.All(snapshot)))
		s.Ended()
	}
}
