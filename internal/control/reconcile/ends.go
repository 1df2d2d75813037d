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

// setDeadlines sets when connections of a service's failed endpoints end, according to the
// service's on-fail. An endpoint that is eligible for new connections keeps all of its connections.
// At the deadline of a drain, the service is applied again, without the endpoint's server ID of
// QUIC.
func (s *Services) setDeadlines(service *lb.Service, table *bpf.ServiceTable) {
	serves := false
	for _, e := range table.Endpoints {
		serves = serves || e.CurrentWeight > 0
	}
	decision := endDecision{probes: s.Health.probes, service: service}
	for i, e := range service.Endpoints {
		row := &table.Endpoints[i]
		if row.CurrentWeight > 0 {
			continue
		}
		if serves || decision.isRefused(e) {
			row.Deadline, row.Failed = decision.deadline(e)
		}
	}
	wait := decision.wait
	if service.Algorithm == lb.QUIC {
		if left := s.Desired.Drains.NextDeadline(s.Desired.Snapshot(), service); wait == 0 || left > 0 && left < wait {
			wait = left
		}
	}
	s.reapply.schedule(service.Key, wait)
}

// endDecision decides when connections of failed endpoints of a service end, while others serve.
// New connections avoid an endpoint after any failure, but ending open connections is harmful if
// the endpoint works. So they end only if the failure is confirmed: as many probes in a row have
// failed as the service configures, and another endpoint has answered meanwhile. Otherwise this
// machine's own link may have failed. If none of the serving endpoints can answer probes, the
// failures suffice.
type endDecision struct {
	probes  *probes
	service *lb.Service
	others  *otherEndpoints // nil: not collected yet
	wait    time.Duration   // until the next probe result; 0: the decision is final
}

// otherEndpoints are the other endpoints of a service, as evidence about a failing one.
type otherEndpoints struct {
	answered []health.Status // of the endpoints that answer
	probed   bool            // a serving endpoint has a probe that can answer
}

// deadline returns when an endpoint's connections end, and whether its flows and handshakes move to
// other endpoints. Failing handshakes do not end TCP connections: open ones may work. Flows of
// protocols without a handshake move at once: they have no end to wait for.
func (d *endDecision) deadline(e lb.Endpoint) (none bpf.Deadline, failed bool) {
	eff := d.probes.effectiveHealth(d.service, e)
	if eff.refused != nil {
		return bpf.Deadline{At: eff.refusedSince, Rate: failRate, Why: "IPsec policy"}, true
	}
	handshake := d.service.Protocol.HasHandshake()
	after, end := d.service.ClosingDelay(d.service.OnFail)
	if !handshake {
		after, end = 0, true
	}
	failed = eff.down() && handshake // moving a handshake costs nothing
	if !eff.probeDown() || !end {
		return none, failed
	}
	if !d.isConfirmed(&eff.Status) {
		if eff.Interval > 0 && (d.wait == 0 || eff.Interval < d.wait) {
			d.wait = eff.Interval
		}
		return none, failed
	}
	return bpf.Deadline{At: cmp.Or(eff.ProbeSince, time.Now()).Add(after), Rate: failRate, Why: "endpoint down"}, true
}

// isRefused reports whether an IPsec policy refuses all of the endpoint's packets. Its connections
// then end even if no other endpoint serves.
func (d *endDecision) isRefused(e lb.Endpoint) bool {
	r, _, ok := d.probes.policies.refusal(d.service, e)
	return ok && r.RefusesAll
}

// isConfirmed reports whether the endpoint itself has failed, not the path to it. An agent's report
// needs no confirmation.
func (d *endDecision) isConfirmed(s *health.Status) bool {
	if s.Overridden {
		return true
	}
	if s.Failures < s.Fall {
		return false
	}
	if d.others == nil {
		d.others = d.findOthers()
	}
	return !d.others.probed || slices.ContainsFunc(d.others.answered, func(o health.Status) bool { return answeredWhile(&o, s) })
}

func (d *endDecision) findOthers() *otherEndpoints {
	others := new(otherEndpoints)
	for _, e := range d.service.Endpoints {
		eff := d.probes.effectiveHealth(d.service, e)
		if !eff.hasProbe {
			continue
		}
		if eff.Successes > 0 {
			others.answered = append(others.answered, eff.Status)
		}
		others.probed = others.probed || e.Weight > 0 && !eff.probeDown() && !eff.Undecided
	}
	return others
}

// answeredWhile reports whether another endpoint answered for at least one probe interval while
// this one failed.
func answeredWhile(other, failed *health.Status) bool {
	from, to := other.First, other.Last
	if failed.First.After(from) {
		from = failed.First
	}
	if failed.Last.Before(to) {
		to = failed.Last
	}
	return to.Sub(from) >= other.Interval
}

// reapplyTimers schedules services to be applied again. Only the loop's goroutine uses it.
type reapplyTimers struct {
	timers map[lb.Key]*time.Timer
	mark   func(...lb.Key)
}

// schedule schedules the service to be applied again after wait; 0 cancels that.
func (r *reapplyTimers) schedule(k lb.Key, wait time.Duration) {
	if t := r.timers[k]; t != nil {
		t.Stop()
		delete(r.timers, k)
	}
	if wait > 0 {
		r.timers[k] = time.AfterFunc(wait, func() { r.mark(k) })
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
