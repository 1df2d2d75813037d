package reconcile

import (
	"slices"
	"time"

	"loxilb/internal/control/health"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

// effectiveHealth is an endpoint's health as one service sees it: probe, agent, outlier and IPsec
// verdicts combined. It is the single source of truth for "is this endpoint down?".
type effectiveHealth struct {
	health.Status                      // of the probe and the agents; ProbeState excludes ejections
	hasProbe      bool                 // Status is valid
	ejected       bool                 // out of rotation because handshakes fail
	certain       bool                 // ejected even if most others are, too
	failing       bool                 // handshakes fail, whether or not it is ejected
	refused       *policy.IPsecRefusal // the IPsec policy that refuses its packets or answers, or nil
	refusedSince  time.Time
}

func (eff *effectiveHealth) down() bool { return eff.ejected || eff.refused != nil || eff.probeDown() }

// probeDown reports whether a probe or an agent has marked it down.
func (eff *effectiveHealth) probeDown() bool { return eff.hasProbe && eff.ProbeState == health.Down }

// unconfirmed reports whether it is down because the first probes of a new endpoint have failed.
func (eff *effectiveHealth) unconfirmed() bool {
	return eff.probeDown() && eff.Unconfirmed && !eff.Overridden && eff.refused == nil
}

// effectiveHealth returns the health of an endpoint as the service sees it.
func (p *probes) effectiveHealth(s *lb.Service, e lb.Endpoint) (eff effectiveHealth) {
	p.mu.Lock()
	key := p.keyOfLocked(s, e)
	eff.ejected, eff.certain = p.ejections.isEjected(s, e), p.ejections.isCertain(e)
	eff.failing, _ = p.ejections.failing(s, e)
	since, agentDown := p.reportedDown(s, e)
	p.mu.Unlock()
	if r, since, ok := p.policies.refusal(s, e); ok && r.RefusesAll {
		eff.refused, eff.refusedSince = &r, since
	}
	if key != "" {
		eff.Status, eff.hasProbe = p.prober.Status(key)
	}
	if agentDown && eff.hasProbe {
		if eff.ProbeState != health.Down || since.Before(eff.ProbeSince) {
			eff.ProbeSince = since
		}
		eff.State, eff.ProbeState, eff.Overridden = health.Down, health.Down, true
	}
	return eff
}

// considersHealth reports whether any health source applies to a service's endpoints.
func (p *probes) considersHealth(s *lb.Service) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.policies.any() || s.Monitored() || len(p.ejections.current)+len(p.ejections.shown) > 0
}

// up returns a function that reports which endpoints of a service are eligible for new connections;
// nil means all. An endpoint of unknown state is eligible: a start of the daemon must not refuse
// clients. An ejected endpoint is not eligible, unless fewer than half of the endpoints would be
// up: then the endpoints are hardly the cause, or the others could not carry the load. This
// exception does not cover endpoints that certainly fail while another endpoint is up, nor backup
// levels before the first level with an endpoint that is up.
//
// While no endpoint is up, endpoints get connections until enough probes have confirmed their first
// failure, so a new service does not refuse clients while its servers start.
func (p *probes) up(s *lb.Service) func(lb.Endpoint) bool {
	if !p.considersHealth(s) {
		return nil
	}
	healths := make(map[lb.Endpoint]effectiveHealth, len(s.Endpoints))
	weighted, upCount, firstLevel := 0, 0, uint8(0)
	for _, e := range s.Endpoints {
		eff := p.effectiveHealth(s, e)
		healths[e] = eff
		if e.Weight == 0 {
			continue
		}
		weighted++
		if eff.down() {
			continue
		}
		if upCount++; upCount == 1 || e.Backup < firstLevel {
			firstLevel = e.Backup
		}
	}
	panicked := 2*upCount < weighted
	return func(e lb.Endpoint) bool {
		eff := healths[e]
		if upCount == 0 && eff.unconfirmed() {
			return true
		}
		stays := !eff.ejected || panicked && (!eff.certain || upCount == 0) && e.Backup >= firstLevel
		return stays && !eff.probeDown() && eff.refused == nil
	}
}

// changedWithin reports whether an endpoint of a service became up or down during the given time.
func (p *probes) changedWithin(s *lb.Service, d time.Duration) bool {
	if !p.considersHealth(s) {
		return false
	}
	return slices.ContainsFunc(s.Endpoints, func(e lb.Endpoint) bool {
		p.mu.Lock()
		key := p.keyOfLocked(s, e)
		p.mu.Unlock()
		if key == "" {
			return false
		}
		status, known := p.prober.Status(key)
		return known && min(time.Since(status.Since), time.Since(status.ProbeSince)) < d
	})
}

// verdict returns the evidence about an endpoint that a service considers, by source.
func (p *probes) verdict(s *lb.Service, e lb.Endpoint) (v report.Verdict) {
	if r, _, ok := p.policies.refusal(s, e); ok && r.RefusesAll {
		v.Refused = true
	}
	p.mu.Lock()
	key, agentDown := "", false
	if s.Monitored() || len(p.ejections.shown) > 0 {
		key = p.keyOfLocked(s, e)
	}
	v.Ejected = p.ejections.isEjected(s, e)
	_, v.Failing = p.ejections.failing(s, e) // set also if it stays in rotation: no other source reports it then
	if key != "" {
		_, agentDown = p.reportedDown(s, e)
	}
	p.mu.Unlock()
	if key == "" {
		return v
	}
	if _, state, known := p.prober.State(key); known {
		v.Agent = agentDown
		// The state of a target of type none is evidence only if it is down.
		if s.IsProbed(e) || state == health.Down {
			v.Probe = report.HealthState(state)
		}
	}
	return v
}

// EndpointVerdict returns the verdict about an endpoint of a service.
func (h *Health) EndpointVerdict(s *lb.Service, e lb.Endpoint) report.Verdict {
	v := h.probes.verdict(s, e)
	v.NoRoute = h.noRoute(e.Addr) != nil
	return v
}

// ejectedEvidence is the evidence of an ejected endpoint whose probe does not report it down.
const ejectedEvidence = "handshakes of clients with it fail"

// EndpointHealth returns the health of an endpoint of a service. It returns false if the service
// does not consider health, or nothing is known.
func (h *Health) EndpointHealth(s *lb.Service, e lb.Endpoint) (report.EndpointHealth, bool) {
	eff := h.probes.effectiveHealth(s, e)
	out := report.EndpointHealth{State: report.HealthState(eff.ProbeState), Since: eff.ProbeSince, Checked: eff.Checked,
		Evidence: eff.Evidence, AvgDelay: eff.AvgDelay, Failures: eff.Failures, Successes: eff.Successes}
	if eff.hasProbe {
		out.Downs, out.Downtime = eff.Downs, eff.Downtime(time.Now())
	}
	if eff.failing {
		out.State = report.HealthDown
		if !eff.probeDown() {
			out.Evidence = ejectedEvidence
		}
	}
	noRoute := h.noRoute(e.Addr)
	if noRoute != nil && !eff.probeDown() {
		out.State, out.Evidence = report.HealthDown, noRoute.Error()
	}
	if eff.refused != nil {
		out.State, out.Since, out.Evidence = report.HealthDown, eff.refusedSince, ipsecEvidence(*eff.refused)
	}
	return out, eff.hasProbe || eff.failing || eff.refused != nil || noRoute != nil
}
