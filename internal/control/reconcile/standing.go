package reconcile

import (
	"slices"
	"time"

	"loxilb/internal/control/health"
	"loxilb/internal/lb"
)

// standing is how an endpoint is, as far as a service heeds it. All that asks whether an endpoint is down asks this.
type standing struct {
	health.Status                  // of its probe, agents' word included; Asked is what counts of it
	known         bool             // there is one
	out           bool             // of rotation, as handshakes fail
	failing       bool             // handshakes fail, whether or not it is out
	refused       *lb.IPsecRefusal // a policy of IPsec refuses all packets to it, or its answers; nil: none does
	refusedSince  time.Time
}

func (j *standing) down() bool { return j.out || j.refused != nil || j.askedDown() }

// askedDown tells whether it is down for probes, or agents.
func (j *standing) askedDown() bool { return j.known && j.Asked == health.Down }

func (p *probes) standing(s *lb.Service, e lb.Endpoint) (j standing) {
	p.mu.Lock()
	key := p.keyAt(s, e)
	j.out = p.ejections.out(s, e)
	j.failing, _ = p.ejections.failing(s, e)
	since, red := p.portRed(s, e)
	p.mu.Unlock()
	if r, since, ok := p.policies.refusal(s, e); ok && r.Whole {
		j.refused, j.refusedSince = &r, since
	}
	if key != "" {
		j.Status, j.known = p.prober.Status(key)
	}
	if red && j.known {
		if j.Asked != health.Down || since.Before(j.AskedSince) {
			j.AskedSince = since
		}
		j.State, j.Asked, j.Told = health.Down, health.Down, true
	}
	return j
}

// heeds tells whether there is anything to know of a service's endpoints.
func (p *probes) heeds(s *lb.Service) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.policies.any() || s.Monitored() || len(p.ejections.now)+len(p.ejections.shown) > 0
}

// up tells which endpoints of a service may take new connections; nil: all. One of which nothing is known yet may: nobody is to be
// refused because the daemon has just started. Those with which handshakes fail may not, unless fewer than half of the endpoints would be
// left: then the fault is hardly theirs, or the others would not bear it. That does not hold for levels of which nothing is left while
// backups are.
func (p *probes) up(s *lb.Service) func(lb.Endpoint) bool {
	if !p.heeds(s) {
		return nil
	}
	standings := make(map[lb.Endpoint]standing, len(s.Endpoints))
	taking, left, serving := 0, 0, uint8(0)
	for _, e := range s.Endpoints {
		j := p.standing(s, e)
		standings[e] = j
		if e.Weight == 0 {
			continue
		}
		taking++
		if j.down() {
			continue
		}
		if left++; left == 1 || e.Backup < serving {
			serving = e.Backup
		}
	}
	panicked := 2*left < taking
	return func(e lb.Endpoint) bool {
		j := standings[e]
		return !j.askedDown() && j.refused == nil && (!j.out || panicked && e.Backup >= serving)
	}
}

// moved tells whether an endpoint of a service has become up or down within the last time.
func (p *probes) moved(s *lb.Service, last time.Duration) bool {
	if !p.heeds(s) {
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
		return known && min(time.Since(status.Since), time.Since(status.AskedSince)) < last
	})
}

// verdict is what is known about an endpoint, as far as a service considers it, by source.
func (p *probes) verdict(s *lb.Service, e lb.Endpoint) (v lb.Verdict) {
	if r, _, ok := p.policies.refusal(s, e); ok && r.Whole {
		v.Refused = true
	}
	p.mu.Lock()
	key, red := "", false
	if s.Monitored() || len(p.ejections.shown) > 0 {
		key = p.keyAt(s, e)
	}
	v.Ejected = p.ejections.out(s, e)
	_, v.Failing = p.ejections.failing(s, e) // one that is kept: nothing else takes it out
	if key != "" {
		_, red = p.portRed(s, e)
	}
	p.mu.Unlock()
	if key == "" {
		return v
	}
	if _, asked, known := p.prober.State(key); known {
		v.Agent = red
		// A target that asks nothing shows ejections: it says nothing in favour of the endpoint.
		if s.Probes(e) || asked == health.Down {
			v.Probe = lb.HealthState(asked)
		}
	}
	return v
}

// EndpointVerdict is what is known about the health of an endpoint of a service.
func (h *Health) EndpointVerdict(s *lb.Service, e lb.Endpoint) lb.Verdict {
	v := h.probes.verdict(s, e)
	v.NoRoute = h.noRoute(e.Addr) != nil
	return v
}

// ejectedEvidence is that of an endpoint that no probe says anything against.
const ejectedEvidence = "handshakes of clients with it fail"

// EndpointHealth is what is known of an endpoint of a service; false: the service does not heed it, or nothing is known of it.
func (h *Health) EndpointHealth(s *lb.Service, e lb.Endpoint) (lb.EndpointHealth, bool) {
	j := h.probes.standing(s, e)
	out := lb.EndpointHealth{State: lb.HealthState(j.Asked), Since: j.AskedSince, Checked: j.Checked, Evidence: j.Evidence, AvgDelay: j.AvgDelay, Failures: j.Failures, Successes: j.Successes}
	if j.known {
		out.Downs, out.Downtime = j.Downs, j.Downtime(time.Now())
	}
	if j.failing {
		out.State = lb.HealthDown
		if !j.askedDown() {
			out.Evidence = ejectedEvidence
		}
	}
	noRoute := h.noRoute(e.Addr)
	if noRoute != nil && !j.askedDown() {
		out.State, out.Evidence = lb.HealthDown, noRoute.Error()
	}
	if j.refused != nil {
		out.State, out.Since, out.Evidence = lb.HealthDown, j.refusedSince, ipsecEvidence(*j.refused)
	}
	return out, j.known || j.failing || j.refused != nil || noRoute != nil
}
