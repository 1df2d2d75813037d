package reconcile

import (
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/control/health"
	"loxilb/internal/lb"
)

// agentReports are the reports of agents about probed addresses. The newest one that covers a
// target applies.
type agentReports map[netip.Addr][]agentReport

// agentReport takes targets of a port and probe type out, or gives them back.
type agentReport struct {
	port  uint16       // 0: any
	probe lb.ProbeType // ProbeAuto: any
	red   bool
	since time.Time // of the first identical report
}

// maxIdleReports bounds the reports about an address of which some cover no target: a service may
// get its port back.
const maxIdleReports = 64

func (r agentReport) covers(port uint16, t lb.ProbeType) bool {
	return (r.port == 0 || r.port == port) && (r.probe == lb.ProbeAuto || r.probe == t || r.probe == t.Transport())
}

// red reports whether agents have taken a target out, and since when.
func (rs agentReports) red(t *health.Target) (since time.Time, red bool) {
	for _, r := range slices.Backward(rs[t.Addr]) {
		if r.covers(t.Port, t.Probe.Type) {
			return r.since, r.red
		}
	}
	return since, false
}

// add adds a report about an address with these targets. It replaces the reports that it covers,
// and changes nothing if it repeats the last of them.
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
	kind := lb.ProbeTCP
	if s.Protocol != lb.TCP {
		kind = lb.ProbeUDP
	}
	return &health.Target{Addr: e.Addr, Port: e.Port, Probe: lb.Probe{Type: kind}}
}

// trackPortless adds a service whose probe has no port, or removes it.
func (p *probes) trackPortless(c requestChange) {
	s := c.service
	switch {
	case c.by > 0 && s.Monitored() && (s.Protocol == lb.TCP || s.Protocol == lb.UDP) &&
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
	return p.reports.red(portOf(s, e))
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
