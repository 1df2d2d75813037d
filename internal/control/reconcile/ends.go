package reconcile

import (
	"cmp"
	"slices"
	"time"

	"loxilb/internal/control/health"
	"loxilb/internal/control/store"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

// failRate is the number of TCP connections of a failed endpoint that are reset per second.
const failRate = 1000

// setEnds sets when connections of a service's failed endpoints end, according to the service's
// on-fail. An endpoint that is eligible for new connections keeps all of its connections. At the
// deadline of a drain, the service is applied again, without the endpoint's server ID of QUIC.
func (s *Services) setEnds(service *lb.Service, table *bpf.ServiceTable) {
	serves := false
	for _, e := range table.Endpoints {
		serves = serves || e.CurrentWeight > 0
	}
	f := endDecision{probes: s.Health.probes, service: service}
	for i, e := range service.Endpoints {
		row := &table.Endpoints[i]
		if row.CurrentWeight > 0 {
			continue
		}
		if serves || f.isRefused(e) {
			row.Ends, row.Failed = f.ends(e)
		}
	}
	wait := f.wait
	if service.Algorithm == lb.QUIC {
		if left := s.Desired.Drains.NextDeadline(s.Desired.Snapshot(), service); wait == 0 || left > 0 && left < wait {
			wait = left
		}
	}
	s.pending.schedule(service.Key, wait)
}

// endDecision decides when connections of failed endpoints of a service end, while others serve.
// New connections avoid an endpoint after any failure, but ending open connections is harmful if
// the endpoint works. So they end only if the failure is confirmed: as many probes in a row have
// failed as the service configures, and another endpoint has answered meanwhile. Otherwise this
// machine's own link may have failed. If none of the serving endpoints can answer probes, the
// failures suffice.
type endDecision struct {
	probes    *probes
	service   *lb.Service
	witnesses *witnesses    // nil: not collected yet
	wait      time.Duration // until the next probe result; 0: the decision is final
}

// witnesses are the other endpoints of a service, as evidence about a failing one.
type witnesses struct {
	answered []health.Status // of the endpoints that answer
	probed   bool            // a serving endpoint has a probe that can answer
}

// ends returns when an endpoint's connections end, and whether its flows and handshakes move to
// other endpoints. Failing handshakes do not end TCP connections: open ones may work. Flows of
// protocols without a handshake move at once: they have no end to wait for.
func (f *endDecision) ends(e lb.Endpoint) (ends bpf.Ends, failed bool) {
	j := f.probes.effectiveHealth(f.service, e)
	if j.refused != nil {
		return bpf.Ends{At: j.refusedSince, Rate: failRate, Why: "IPsec policy"}, true
	}
	handshake := f.service.Protocol.HasHandshake()
	after, end := f.service.After(f.service.OnFail)
	if !handshake {
		after, end = 0, true
	}
	failed = j.down() && handshake // moving a handshake costs nothing
	if !j.probeDown() || !end {
		return ends, failed
	}
	if !f.isConfirmed(&j.Status) {
		if j.Interval > 0 && (f.wait == 0 || j.Interval < f.wait) {
			f.wait = j.Interval
		}
		return ends, failed
	}
	return bpf.Ends{At: cmp.Or(j.ProbeSince, time.Now()).Add(after), Rate: failRate, Why: "endpoint down"}, true
}

// isRefused reports whether an IPsec policy refuses all of the endpoint's packets. Its connections
// then end even if no other endpoint serves.
func (f *endDecision) isRefused(e lb.Endpoint) bool {
	r, _, ok := f.probes.policies.refusal(f.service, e)
	return ok && r.Whole
}

// isConfirmed reports whether the endpoint itself has failed, not the path to it. An agent's report
// needs no confirmation.
func (f *endDecision) isConfirmed(s *health.Status) bool {
	if s.Overridden {
		return true
	}
	if s.Failures < s.Fall {
		return false
	}
	if f.witnesses == nil {
		f.witnesses = f.findWitnesses()
	}
	return !f.witnesses.probed || slices.ContainsFunc(f.witnesses.answered, func(o health.Status) bool { return answeredWhile(&o, s) })
}

func (f *endDecision) findWitnesses() *witnesses {
	w := new(witnesses)
	for _, e := range f.service.Endpoints {
		j := f.probes.effectiveHealth(f.service, e)
		if !j.hasProbe {
			continue
		}
		if j.Successes > 0 {
			w.answered = append(w.answered, j.Status)
		}
		w.probed = w.probed || e.Weight > 0 && !j.probeDown() && !j.Undecided
	}
	return w
}

// answeredWhile reports whether another endpoint answered for at least one probe interval while
// this one failed.
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

// reapplyTimers schedule services to be applied again. Only the loop's goroutine uses them.
type pending struct {
	timers map[lb.Key]*time.Timer
	mark   func(...lb.Key)
}

// schedule schedules the service to be applied again after wait; 0 cancels that.
func (u *pending) schedule(k lb.Key, wait time.Duration) {
	if t := u.timers[k]; t != nil {
		t.Stop()
		delete(u.timers, k)
	}
	if wait > 0 {
		u.timers[k] = time.AfterFunc(wait, func() { u.mark(k) })
	}
}

// publishDrains passes the drained endpoints to the data path, including those that left their
// services.
func (s *Services) publishDrains(snapshot *store.Snapshot, changed []store.ID, all bool) {
	if all || slices.ContainsFunc(changed, func(id store.ID) bool { return id.Kind == kinds.DrainName }) {
		s.Tables.SetDrains(slices.Collect(s.Desired.Drains.All(snapshot)))
		s.Ended()
	}
}
