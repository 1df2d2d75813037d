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

// agentReport takes targets of a port and probe type out of service, or returns them to their
// probes.
type agentReport struct {
	port  uint16       // 0: any
	probe lb.ProbeType // ProbeAuto: any
	down  bool
	since time.Time // of the first identical report
}

// maxIdleReports bounds the reports for an address. Up to this number, reports that cover no target
// are kept as well: a later target may have their port.
const maxIdleReports = 64

func (r agentReport) covers(port uint16, t lb.ProbeType) bool {
	return (r.port == 0 || r.port == port) && (r.probe == lb.ProbeAuto || r.probe == t || r.probe == t.Transport())
}

// reportedDown reports whether agents have taken a target out, and since when.
func (rs agentReports) reportedDown(t *health.Target) (since time.Time, reportedDown bool) {
	for _, r := range slices.Backward(rs[t.Addr]) {
		if r.covers(t.Port, t.Probe.Type) {
			return r.since, r.down
		}
	}
	return since, false
}

// add adds a report about an address with these targets. It replaces the reports that it covers,
// and changes nothing if it repeats the latest report.
func (rs agentReports) add(a netip.Addr, r agentReport, targets []*health.Target) {
	since := r.since
	all := slices.DeleteFunc(rs[a], func(o agentReport) bool {
		if !r.covers(o.port, o.probe) {
			return false
		}
		since = r.since
		if o.port == r.port && o.probe == r.probe && o.down == r.down {
			since = o.since
		}
		return true
	})
	r.since = since
	all = append(all, r)
	if len(all) > maxIdleReports {
		all = slices.DeleteFunc(all, func(r agentReport) bool {
			return !slices.ContainsFunc(targets, func(t *health.Target) bool { return r.covers(t.Port, t.Probe.Type) })
		})
	}
	if slices.ContainsFunc(all, func(r agentReport) bool { return r.down }) {
		rs[a] = all
	} else {
		delete(rs, a)
	}
}

// portTarget returns the target that stands for an endpoint in reports with a port, if the probe of
// its service has no port.
func portTarget(s *lb.Service, e lb.Endpoint) *health.Target {
	return &health.Target{Addr: e.Addr, Port: e.Port, Probe: lb.Probe{Type: lb.AutoProbe(s.Protocol)}}
}

// trackPortless adds or removes a service, if its probe has no port.
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
// probe's own status does not include such reports if the probe has no port.
func (p *probes) reportedDown(s *lb.Service, e lb.Endpoint) (since time.Time, down bool) {
	if p.portless[s.Key] == nil {
		return since, false
	}
	return p.reports.reportedDown(portTarget(s, e))
}

// byPort returns the endpoints that a report with a port covers, of services whose probes have no
// port, and these services.
func (p *probes) byPort(a netip.Addr, r agentReport) (services []lb.Key, targets []*health.Target) {
	for key, s := range p.portless {
		for _, e := range s.Endpoints {
			if t := portTarget(s, e); e.Addr == a && r.port == e.Port && r.covers(t.Port, t.Probe.Type) {
				services, targets = append(services, key), append(targets, t)
			}
		}
	}
	return services, targets
}

// SetHostState takes the targets at an address out of service, or returns them to their probes. It
// applies to a port (0: any) and probe type (lb.ProbeAuto: any), also to targets probed there
// later. It returns the number of current matches; without any, the report is dropped.
func (h *Health) SetHostState(a netip.Addr, port uint16, t lb.ProbeType, down bool) (found int) {
	p := h.probes
	p.mu.Lock()
	report := agentReport{port: port, probe: t, down: down, since: time.Now()}
	services, targets := p.byPort(a, report)
	found = len(targets)
	for key := range p.byAddr.of(a) {
		r := p.groups[p.names[key]].probes[key]
		targets = append(targets, &r.target)
		if report.covers(r.target.Port, r.target.Probe.Type) {
			p.setAgentDown(key, r, down)
			found++
		}
	}
	if found > 0 {
		p.reports.add(a, report, targets)
	}
	p.mu.Unlock()
	h.markServices(services)
	return found
}

// setAgentDown takes a target out of service, or returns it to its probe. p stays locked, so the
// prober receives changes in order.
func (p *probes) setAgentDown(key string, r *runningProbe, down bool) {
	r.agentDown = down
	if down {
		p.prober.Override(key, health.Down, "an agent reports it down")
	} else {
		p.prober.Override(key, health.Unknown, "")
	}
}
