package reconcile

import (
	"net/netip"
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
	certain       bool                 // it is ejected however many others are
	failing       bool                 // handshakes fail, whether or not it is ejected
	refused       *policy.IPsecRefusal // the IPsec policy that refuses its packets or answers, or nil
	refusedSince  time.Time
}

func (j *effectiveHealth) down() bool { return j.ejected || j.refused != nil || j.probeDown() }

// probeDown reports whether a probe or an agent has marked it down.
func (j *effectiveHealth) probeDown() bool { return j.hasProbe && j.ProbeState == health.Down }

// unconfirmed reports whether it is down because the first probes of a new endpoint have failed.
func (j *effectiveHealth) unconfirmed() bool {
	return j.probeDown() && j.Unconfirmed && !j.Overridden && j.refused == nil
}

// effectiveHealth returns the health of an endpoint as the service sees it.
func (p *probes) effectiveHealth(s *lb.Service, e lb.Endpoint) (j effectiveHealth) {
	p.mu.Lock()
	key := p.keyAt(s, e)
	j.ejected, j.certain = p.ejections.isOut(s, e), p.ejections.isCertain(e)
	j.failing, _ = p.ejections.failing(s, e)
	since, red := p.reportedDown(s, e)
	p.mu.Unlock()
	if r, since, ok := p.policies.refusal(s, e); ok && r.Whole {
		j.refused, j.refusedSince = &r, since
	}
	if key != "" {
		j.Status, j.hasProbe = p.prober.Status(key)
	}
	if red && j.hasProbe {
		if j.ProbeState != health.Down || since.Before(j.ProbeSince) {
			j.ProbeSince = since
		}
		j.State, j.ProbeState, j.Overridden = health.Down, health.Down, true
	}
	return j
}

// considersHealth reports whether any health source applies to a service's endpoints.
func (p *probes) considersHealth(s *lb.Service) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.policies.any() || s.Monitored() || len(p.ejections.now)+len(p.ejections.shown) > 0
}

// up returns a function that reports which endpoints of a service are eligible for new connections;
// nil means all. An endpoint of unknown state is eligible: a start of the daemon must not refuse
// clients. An ejected endpoint is not, unless fewer than half of the endpoints would be left: then
// they are hardly the cause, or the others could not carry the load. This exception does not apply
// to endpoints that certainly fail while another is left, or to levels without a usable endpoint
// while backups serve.
//
// While no endpoint is left, endpoints get connections until enough probes have confirmed their
// first failure: a new service does not refuse clients because its servers are about to start.
func (p *probes) up(s *lb.Service) func(lb.Endpoint) bool {
	if !p.considersHealth(s) {
		return nil
	}
	effective := make(map[lb.Endpoint]effectiveHealth, len(s.Endpoints))
	weighted, left, serving := 0, 0, uint8(0)
	for _, e := range s.Endpoints {
		j := p.effectiveHealth(s, e)
		effective[e] = j
		if e.Weight == 0 {
			continue
		}
		weighted++
		if j.down() {
			continue
		}
		if left++; left == 1 || e.Backup < serving {
			serving = e.Backup
		}
	}
	panicked := 2*left < weighted
	return func(e lb.Endpoint) bool {
		j := effective[e]
		if left == 0 && j.unconfirmed() {
			return true
		}
		return !j.probeDown() && j.refused == nil && (!j.ejected || panicked && (!j.certain || left == 0) && e.Backup >= serving)
	}
}

// changedWithin reports whether an endpoint of a service became up or down during the given time.
func (p *probes) changedWithin(s *lb.Service, last time.Duration) bool {
	if !p.considersHealth(s) {
		return false
	}
	return slices.ContainsFunc(s.Endpoints, func(e lb.Endpoint) bool {
		p.mu.Lock()
		key := p.keyAt(s, e)
		p.mu.Unlock()
		if key == "" {
			return false
		}
		status, known := p.prober.Status(key)
		return known && min(time.Since(status.Since), time.Since(status.ProbeSince)) < last
	})
}

// verdict returns the evidence about an endpoint that a service considers, by source.
func (p *probes) verdict(s *lb.Service, e lb.Endpoint) (v report.Verdict) {
	if r, _, ok := p.policies.refusal(s, e); ok && r.Whole {
		v.Refused = true
	}
	p.mu.Lock()
	key, red := "", false
	if s.Monitored() || len(p.ejections.shown) > 0 {
		key = p.keyAt(s, e)
	}
	v.Ejected = p.ejections.isOut(s, e)
	_, v.Failing = p.ejections.failing(s, e) // it stays in rotation, and no other source reports it
	if key != "" {
		_, red = p.reportedDown(s, e)
	}
	p.mu.Unlock()
	if key == "" {
		return v
	}
	if _, state, known := p.prober.State(key); known {
		v.Agent = red
		// A target without a probe shows ejections only: it is no evidence for the
		// endpoint.
		if s.Probes(e) || state == health.Down {
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
// does not consider it, or nothing is known.
func (h *Health) EndpointHealth(s *lb.Service, e lb.Endpoint) (report.EndpointHealth, bool) {
	j := h.probes.effectiveHealth(s, e)
	out := report.EndpointHealth{State: report.HealthState(j.ProbeState), Since: j.ProbeSince, Checked: j.Checked,
		Evidence: j.Evidence, AvgDelay: j.AvgDelay, Failures: j.Failures, Successes: j.Successes}
	if j.hasProbe {
		out.Downs, out.Downtime = j.Downs, j.Downtime(time.Now())
	}
	if j.failing {
		out.State = report.HealthDown
		if !j.probeDown() {
			out.Evidence = ejectedEvidence
		}
	}
	noRoute := h.noRoute(e.Addr)
	if noRoute != nil && !j.probeDown() {
		out.State, out.Evidence = report.HealthDown, noRoute.Error()
	}
	if j.refused != nil {
		out.State, out.Since, out.Evidence = report.HealthDown, j.refusedSince, ipsecEvidence(*j.refused)
	}
	return out, j.hasProbe || j.failing || j.refused != nil || noRoute != nil
}

// agentReports are the reports of agents about probed addresses. The newest one that covers a
// target applies.
type agentReports map[netip.Addr][]agentReport

// agentReport takes targets of a port and probe type out of service, or returns them to their
// probes.
type agentReport struct {
	port  uint16       // 0: any
	probe lb.ProbeType // ProbeAuto: any
	red   bool
	since time.Time // of the first identical report
}

// maxIdleReports bounds the reports for an address, including some that cover no target: a service
// may get its port back.
const maxIdleReports = 64

func (r agentReport) covers(port uint16, t lb.ProbeType) bool {
	return (r.port == 0 || r.port == port) && (r.probe == lb.ProbeAuto || r.probe == t || r.probe == t.Transport())
}

// reportedDown reports whether agents have taken a target out, and since when.
func (rs agentReports) reportedDown(t *health.Target) (since time.Time, reportedDown bool) {
	for _, r := range slices.Backward(rs[t.Addr]) {
		if r.covers(t.Port, t.Probe.Type) {
			return r.since, r.red
		}
	}
	return since, false
}

// add adds a report about an address with these targets. It replaces the reports that it covers,
// and changes nothing if it repeats the latest report.
func (rs agentReports) add(a netip.Addr, r agentReport, there []*health.Target) {
	since := r.since
	all := slices.DeleteFunc(rs[a], func(o agentReport) bool {
		if !r.covers(o.port, o.probe) {
			return false
		}
		since = r.since
		if o.port == r.port && o.probe == r.probe && o.red == r.red {
			since = o.since
		}
		return true
	})
	r.since = since
	all = append(all, r)
	if len(all) > maxIdleReports {
		all = slices.DeleteFunc(all, func(r agentReport) bool {
			return !slices.ContainsFunc(there, func(t *health.Target) bool { return r.covers(t.Port, t.Probe.Type) })
		})
	}
	if slices.ContainsFunc(all, func(r agentReport) bool { return r.red }) {
		rs[a] = all
	} else {
		delete(rs, a)
	}
}

// portOf returns the target that a report with a port covers, for a service whose probe has no
// port.
func portOf(s *lb.Service, e lb.Endpoint) *health.Target {
	return &health.Target{Addr: e.Addr, Port: e.Port, Probe: lb.Probe{Type: lb.AutoProbe(s.Protocol)}}
}

// trackPortless adds a service whose probe has no port, or removes it.
func (p *probes) trackPortless(c requestChange) {
	s := c.service
	switch {
	case c.by > 0 && s.Monitored() && s.Protocol.HasPorts() &&
		slices.ContainsFunc(s.Endpoints, func(e lb.Endpoint) bool { return s.ProbeOf(e).Port == 0 }):
		p.portless[s.Key] = s
	case c.by < 0 && p.portless[s.Key] == s:
		delete(p.portless, s.Key)
	}
}

// reportedDown reports whether an agent has taken an endpoint out by its port, and since when. The
// probe, which has no port, does not know.
func (p *probes) reportedDown(s *lb.Service, e lb.Endpoint) (since time.Time, red bool) {
	if p.portless[s.Key] == nil {
		return since, false
	}
	return p.reports.reportedDown(portOf(s, e))
}

// byPort returns the services without ports in their probes that have endpoints covered by a
// report, and these endpoints.
func (p *probes) byPort(a netip.Addr, r agentReport) (services []lb.Key, there []*health.Target) {
	for key, s := range p.portless {
		for _, e := range s.Endpoints {
			if t := portOf(s, e); e.Addr == a && r.port == e.Port && r.covers(t.Port, t.Probe.Type) {
				services, there = append(services, key), append(there, t)
			}
		}
	}
	return services, there
}
