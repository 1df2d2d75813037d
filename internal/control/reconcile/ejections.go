package reconcile

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/control/health"
	"loxilb/internal/control/health/outlier"
	"loxilb/internal/lb"
)

// ejections are the endpoints that are out of rotation because clients' handshakes fail. They apply
// to all services that consider handshakes. The lock of probes guards them.
//
// Targets of type none show ejections: the target of a probe may be shared by other endpoints and
// services. An endpoint gets such a target when it is first ejected: there may be very many
// endpoints, and few ever fail.
type ejections struct {
	watched map[lb.Key]*lb.Service // services that consider handshakes
	changed chan struct{}          // capacity 1: signals a change of watched
	current map[netip.AddrPort]*ejection
	shown   map[netip.AddrPort]bool // endpoints with a target of type none
}

type ejection struct {
	evidence string
	since    time.Time
	kept     bool     // it stays in rotation: too few others are left
	certain  bool     // ejected even if most others are, too: another endpoint serves clients
	probes   []string // keys of services' probes of it
}

func newEjections() ejections {
	return ejections{
		watched: map[lb.Key]*lb.Service{}, changed: make(chan struct{}, 1), current: map[netip.AddrPort]*ejection{}, shown: map[netip.AddrPort]bool{},
	}
}

// watch adds a service that considers handshakes (by 1), or removes it, and signals the change.
func (e *ejections) watch(c requestChange) {
	if !c.service.JudgesHandshakes() {
		return
	}
	if c.by > 0 {
		e.watched[c.service.Key] = c.service
	} else if e.watched[c.service.Key] == c.service {
		delete(e.watched, c.service.Key)
	}
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// isEjected reports whether an endpoint is ejected, as one service sees it.
func (e *ejections) isEjected(s *lb.Service, at lb.Endpoint) bool {
	failing, kept := e.failing(s, at)
	return failing && !kept && s.EjectsOutliers()
}

// isCertain reports whether an endpoint is ejected even if most others are, too.
func (e *ejections) isCertain(at lb.Endpoint) bool {
	one := e.current[at.AddrPort()]
	return one != nil && one.certain
}

// failing reports whether the handshakes of clients with an endpoint of a service fail. kept
// reports whether it stays in rotation nevertheless.
func (e *ejections) failing(s *lb.Service, at lb.Endpoint) (failing, kept bool) {
	if len(e.current) == 0 || !s.JudgesHandshakes() {
		return false, false
	}
	one := e.current[at.AddrPort()]
	return one != nil, one != nil && one.kept
}

// outliers returns the services that consider handshakes, for the detector.
func (p *probes) outliers() (list []outlier.Service) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, s := range p.ejections.watched {
		list = append(list, outlier.Service{Key: key, Resets: s.ConsidersResets(), Levels: levelsOf(s)})
	}
	return list
}

// levelsOf returns the backup levels of a service's endpoints; nil if it has no backups.
func levelsOf(s *lb.Service) map[netip.AddrPort]uint8 {
	if !s.HasBackups() {
		return nil
	}
	levels := make(map[netip.AddrPort]uint8, len(s.Endpoints))
	for _, e := range s.Endpoints {
		levels[e.AddrPort()] = e.Backup
	}
	return levels
}

// recovered returns the ejected endpoints that a service's own probe of the same port has found
// healthy since the ejection.
func (p *probes) recovered() (list []netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, e := range p.ejections.current {
		if slices.ContainsFunc(e.probes, func(key string) bool { return p.probeRecovered(key, at.Port(), e.since) }) {
			list = append(list, at)
		}
	}
	return list
}

// probeRecovered reports whether enough probes in a row have succeeded since an ejection, at the
// port of the endpoint.
func (p *probes) probeRecovered(key string, port uint16, since time.Time) bool {
	g := p.groups[p.names[key]]
	s, ok := p.prober.Status(key)
	if g == nil || !ok {
		return false
	}
	t := &g.probes[key].target
	if t.Port != port || !slices.Contains([]lb.ProbeType{lb.ProbeTCP, lb.ProbeHTTP, lb.ProbeHTTPS, lb.ProbeGRPC}, t.Probe.Type) {
		return false
	}
	return s.Successes >= t.Probe.Rise && s.Checked.Sub(since) > time.Duration(t.Probe.Rise)*t.Probe.Interval
}

// eject ejects an endpoint, or updates the reason. It returns the services that consider it.
func (p *probes) eject(at netip.AddrPort, update ejection) []lb.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applyAll() // so requests match the watched services
	e := p.ejections.current[at]
	if e == nil {
		e = &ejection{since: time.Now()}
		p.ejections.current[at] = e
	}
	e.evidence, e.kept, e.certain = update.evidence, update.kept, update.certain
	users := p.withEndpoint(at)
	e.probes = e.probes[:0]
	for _, s := range users {
		if key := p.keyOfLocked(s, lb.Endpoint{Addr: at.Addr(), Port: at.Port()}); key != "" && !slices.Contains(e.probes, key) {
			e.probes = append(e.probes, key)
		}
	}
	if !p.ejections.shown[at] && len(users) > 0 {
		p.ejections.shown[at] = true
		name, target := unprobedTarget(at)
		for _, s := range users {
			p.group(name).request(target).users[s.Key]++
		}
		p.applyGroup(name, p.groups[name])
	}
	p.showEjection(at, update.evidence)
	return keysOf(users)
}

// readmit undoes eject.
func (p *probes) readmit(at netip.AddrPort) []lb.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ejections.current[at] == nil {
		return nil
	}
	delete(p.ejections.current, at)
	p.showEjection(at, "")
	return keysOf(p.withEndpoint(at))
}

// withEndpoint returns the services that consider the handshakes of an endpoint.
func (p *probes) withEndpoint(at netip.AddrPort) (list []*lb.Service) {
	for s := range maps.Values(p.ejections.watched) {
		if slices.ContainsFunc(s.Endpoints, func(e lb.Endpoint) bool { return e.AddrPort() == at }) {
			list = append(list, s)
		}
	}
	return list
}

func keysOf(services []*lb.Service) (keys []lb.Key) {
	for _, s := range services {
		keys = append(keys, s.Key)
	}
	return keys
}

// unprobedTarget returns the target of type none that shows ejections of an endpoint.
func unprobedTarget(at netip.AddrPort) (name string, t health.Target) {
	e := lb.EndpointProbe{Addr: at.Addr(), Probe: lb.Probe{Type: lb.ProbeNone, Port: at.Port()}}
	return e.Key(), health.Target{Addr: e.Addr, Port: at.Port(), Probe: e.Complete()}
}

// eachTarget calls f for each target that a service needs.
func (p *probes) eachTarget(s *lb.Service, f func(name string, t health.Target)) {
	for _, e := range s.Endpoints {
		if s.IsProbed(e) {
			f(targetOf(s, e))
		}
		if len(p.ejections.shown) > 0 && p.ejections.shown[e.AddrPort()] && s.JudgesHandshakes() {
			f(unprobedTarget(e.AddrPort()))
		}
	}
}

// forgetShown removes the targets of endpoints that are no longer requested.
func (p *probes) forgetShown() {
	maps.DeleteFunc(p.ejections.shown, func(at netip.AddrPort, _ bool) bool {
		name, _ := unprobedTarget(at)
		return p.groups[name] == nil
	})
}

// showEjection shows at an endpoint's target why it is ejected, or that it no longer is.
func (p *probes) showEjection(at netip.AddrPort, evidence string) {
	name, target := unprobedTarget(at)
	if key := p.keyOfTarget(name, &target); key != "" {
		p.prober.Eject(key, evidence)
	}
}

// restoreEjection shows an ejection at the new target of an endpoint.
func (p *probes) restoreEjection(key string, t *health.Target) {
	if e := p.ejections.current[netip.AddrPortFrom(t.Addr, t.Port)]; e != nil && t.Probe.Type == lb.ProbeNone {
		p.prober.Eject(key, e.evidence)
	}
}
