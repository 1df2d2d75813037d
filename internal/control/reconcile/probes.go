package reconcile

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"loxilb/internal/control/health"
	"loxilb/internal/lb"
)

// Prober probes addresses: a *health.Monitor. None of its methods waits for an answer.
type Prober interface {
	Set(key string, t health.Target) // a key that exists keeps its state
	Remove(key string)
	Status(key string) (health.Status, bool)
	State(key string) (state, probe health.State, ok bool)
	Override(key string, s health.State, evidence string)
	Eject(key, evidence string)
}

// probes are the probes that services and users' objects request. Equal requests of several
// services share a probe. It is safe for concurrent use.
type probes struct {
	prober Prober

	mu      sync.Mutex
	groups  map[string]*probeGroup
	changes []requestChange   // changes since applyRequests
	names   map[string]string // names of groups, by keys of the prober
	sorted  []keyAddr         // the keys in order; nil: outdated
	byAddr  keysAt            // the keys by address
	reports agentReports      // about these addresses

	portless map[lb.Key]*lb.Service // services with probes that have no port

	ejections ejections
	policies  currentPolicies // of IPsec
}

// requestChange adds (by 1) or removes (by -1) the requests of a service.
type requestChange struct {
	service *lb.Service
	by      int
}

// probeGroup has the probes of one name (lb.NameOfProbe): nearly always one, more if services probe
// the same port with different settings.
type probeGroup struct {
	object   *probeRequest // of a user's object; it replaces all other requests
	requests []*probeRequest
	probes   map[string]*runningProbe // by the prober's keys
}

// probeRequest is a target that services or an object request.
type probeRequest struct {
	target health.Target
	users  map[lb.Key]int // services, and the number of their endpoints
	key    string         // of the prober, for this target or the object that replaces it; "": none yet
}

// keyAddr is a key of the prober, and the address of its target.
type keyAddr struct {
	key  string
	addr netip.Addr
}

// runningProbe is a target of the prober.
type runningProbe struct {
	target    health.Target
	agentDown bool      // taken out by an agent
	reported  time.Time // of the last reported change
	changes   uint64    // number of reported changes
}

func newProbes(p Prober) *probes {
	return &probes{prober: p, groups: map[string]*probeGroup{}, names: map[string]string{}, byAddr: keysAt{}, reports: agentReports{}, ejections: newEjections(), portless: map[lb.Key]*lb.Service{}}
}

// targetOf returns a service's probe of an endpoint. Probes leave from the address that the kernel
// chooses. They go to the endpoint's own address, or in mode dsr to the VIP like packets of
// clients; a tunnel of the other IP version carries no probes.
func targetOf(s *lb.Service, e lb.Endpoint) (name string, t health.Target) {
	p := s.ProbeOf(e)
	t = health.Target{Addr: e.Addr, Port: p.Port, Probe: p, ProxyHeader: s.ProxyProtocol && p.Port == e.Port}
	if s.Mode == lb.ModeDSR && s.VIP.Is4() == e.Addr.Is4() && !s.VIP.IsUnspecified() {
		t.VIP, t.Tunnel = s.VIP, s.Tunnel
	}
	return lb.NameOfProbe(e.Addr, &p), t
}

func sameTarget(a, b *health.Target) bool {
	return a.Addr == b.Addr && a.Port == b.Port && a.Source == b.Source && a.VIP == b.VIP && a.Tunnel == b.Tunnel && a.ProxyHeader == b.ProxyHeader && a.Probe.Equal(&b.Probe)
}

// add requests the targets of a service with the next applyRequests. It does nothing if the service
// considers no health.
func (p *probes) add(s *lb.Service) { p.change(s, 1) }

// remove undoes add.
func (p *probes) remove(s *lb.Service) { p.change(s, -1) }

func (p *probes) change(s *lb.Service, by int) {
	if !s.Monitored() && !s.JudgesHandshakes() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changes = append(p.changes, requestChange{s, by})
}

// applyChange changes the requests of a service, and adds the names of affected groups to names.
func (p *probes) applyChange(c requestChange, names map[string]struct{}) {
	p.ejections.watch(c)
	p.trackPortless(c)
	p.eachTarget(c.service, func(name string, target health.Target) {
		req := p.group(name).request(target)
		if req.users[c.service.Key] += c.by; req.users[c.service.Key] <= 0 {
			delete(req.users, c.service.Key)
		}
		names[name] = struct{}{}
	})
}

// group returns the group of a name, and creates it if necessary.
func (p *probes) group(name string) *probeGroup {
	g := p.groups[name]
	if g == nil {
		g = &probeGroup{probes: map[string]*runningProbe{}}
		p.groups[name] = g
	}
	return g
}

// request returns the request for a target, and creates it if necessary.
func (g *probeGroup) request(t health.Target) *probeRequest {
	for _, req := range g.requests {
		if sameTarget(&req.target, &t) {
			return req
		}
	}
	req := &probeRequest{target: t, users: map[lb.Key]int{}}
	g.requests = append(g.requests, req)
	return req
}

// setObject sets or removes (nil) a user's object. It returns the services that consider another
// target now.
func (p *probes) setObject(name string, e *lb.EndpointProbe) []lb.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.group(name)
	if e == nil {
		g.object = nil
	} else {
		probe := e.Complete()
		key := ""
		if g.object != nil {
			key = g.object.key
		}
		g.object = &probeRequest{target: health.Target{Addr: e.Addr, Port: probe.Port, Probe: probe}, key: key}
	}
	moved := p.applyGroup(name, g)
	p.forgetReports()
	return moved
}

// applyRequests applies the requested probes to the prober atomically. A probe that a pass removes
// and adds again is unchanged, and no reader sees an endpoint without its service.
func (p *probes) applyRequests() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applyAll()
}

func (p *probes) applyAll() {
	names := map[string]struct{}{}
	for _, c := range p.changes {
		p.applyChange(c, names)
	}
	p.changes = nil
	for name := range names {
		p.applyGroup(name, p.groups[name])
	}
	p.forgetReports()
	p.forgetShown()
}

// forgetReports drops agents' reports about addresses that are no longer probed. It must be called
// after all groups are applied, since a service may have moved from one to another.
func (p *probes) forgetReports() {
	maps.DeleteFunc(p.reports, func(a netip.Addr, _ []agentReport) bool { return p.byAddr[a] == nil })
}

// applyGroup applies the requests of a group to the prober. A new request takes over the key, and
// so the state, of a former one: an endpoint that is down stays down when its probe changes. It
// returns the users of requests whose key has changed.
func (p *probes) applyGroup(name string, g *probeGroup) (moved []lb.Key) {
	g.requests = slices.DeleteFunc(g.requests, func(req *probeRequest) bool { return len(req.users) == 0 })
	want := g.targets()
	free := make(map[string]bool, len(g.probes))
	for key := range g.probes {
		free[key] = true
	}
	before := make([]string, len(g.requests))
	for i, req := range g.requests {
		before[i] = req.key
	}
	for _, req := range want {
		if r := g.probes[req.key]; r == nil || !sameTarget(&r.target, &req.target) {
			req.key = ""
		}
		delete(free, req.key)
	}
	for _, req := range want {
		if req.key != "" {
			continue
		}
		req.key = g.key(name, free)
		delete(free, req.key)
		p.startProbe(name, g, req)
	}
	for key := range free {
		p.prober.Remove(key)
		p.byAddr.remove(g.probes[key].target.Addr, key)
		delete(g.probes, key)
		delete(p.names, key)
		p.sorted = nil
	}
	for i, req := range g.requests {
		if g.object != nil {
			req.key = g.object.key
		}
		if req.key != before[i] {
			moved = slices.AppendSeq(moved, maps.Keys(req.users))
		}
	}
	if len(want) == 0 {
		delete(p.groups, name)
	}
	return moved
}

// startProbe sets the target of a request at the prober, by its key. An agent's report about the
// former target of that key stays in effect, unless the address differs.
func (p *probes) startProbe(name string, g *probeGroup, req *probeRequest) {
	r := g.probes[req.key]
	if r == nil {
		r = &runningProbe{}
		g.probes[req.key], p.names[req.key] = r, name
	}
	before := r.target.Addr
	r.target = req.target
	p.prober.Set(req.key, req.target)
	p.restoreEjection(req.key, &req.target)
	if before == req.target.Addr {
		return
	}
	p.byAddr.remove(before, req.key) // no effect if there was no target before
	p.byAddr.add(req.target.Addr, req.key)
	p.sorted = nil
	if _, down := p.reports.reportedDown(&req.target); down != r.agentDown {
		p.setAgentDown(req.key, r, down)
	}
}

// targets returns the requested targets.
func (g *probeGroup) targets() []*probeRequest {
	if g.object != nil {
		return []*probeRequest{g.object}
	}
	return g.requests
}

// key returns a key for a request without one: a free one, or a new one. The first key of a group
// is its name; others have a slash, which no object's name has.
func (g *probeGroup) key(name string, free map[string]bool) string {
	key := name
	for i := 2; ; i++ {
		if g.probes[key] == nil || free[key] {
			return key
		}
		key = name + "/" + strconv.Itoa(i)
	}
}

// keyOf returns the prober's key for an endpoint of a service, or "".
func (p *probes) keyOf(s *lb.Service, e lb.Endpoint) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keyOfLocked(s, e)
}

func (p *probes) keyOfLocked(s *lb.Service, e lb.Endpoint) string {
	name, target := targetOf(s, e)
	switch {
	case s.IsProbed(e):
	case p.ejections.shown[e.AddrPort()] && s.JudgesHandshakes():
		name, target = unprobedTarget(e.AddrPort())
	default:
		return ""
	}
	return p.keyOfTarget(name, &target)
}

// keyOfTarget returns the prober's key for a requested target, or "" if it is not requested.
func (p *probes) keyOfTarget(name string, t *health.Target) string {
	g := p.groups[name]
	if g == nil {
		return ""
	}
	if g.object != nil {
		return g.object.key
	}
	for _, req := range g.requests {
		if sameTarget(&req.target, t) {
			return req.key
		}
	}
	return ""
}

// usersOf returns the services that consider the target of a key.
func (g *probeGroup) usersOf(key string) (users []lb.Key) {
	for _, req := range g.requests {
		if req.key == key {
			users = slices.AppendSeq(users, maps.Keys(req.users))
		}
	}
	slices.SortFunc(users, lb.Key.Compare)
	return slices.Compact(users)
}

// objects returns the names of users' objects.
func (p *probes) objects() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, g := range p.groups {
		if g.object != nil {
			names = append(names, name)
		}
	}
	return names
}
