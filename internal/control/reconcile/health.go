package reconcile

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"loxilb/internal/control/health"
	"loxilb/internal/event"
	"loxilb/internal/lb"
)

// Health knows how endpoints are: it has them probed, tells of changes, and has the services that heed them applied again.
type Health struct {
	Observers
	probes *probes

	mu      sync.Mutex
	mark    func(...lb.Key) // nil: there is no loop of services yet
	logged  int             // changes in this window
	untold  int             // those that were not logged
	logging bool            // the window is open
	unheard map[netip.AddrPort]bool
	heard   func() // unheard has others; nil: nobody wants to know

	routeError func(netip.Addr) error // of an address without a route; nil: not known
}

const (
	// logWindow is a time in which so many changes are logged one by one: a rack that fails takes thousands of endpoints along.
	// Events have all.
	logWindow    = 5 * time.Second
	logsInWindow = 20
)

// NewHealth makes one that has endpoints probed by p. Changed is to be called when a key of p has another state.
func NewHealth(p Prober, o Observers) *Health {
	return &Health{Observers: o, probes: newProbes(p), unheard: map[netip.AddrPort]bool{}}
}

// Unheard are endpoints that accept connections of this machine, and leave the SYNs of all clients without an answer that would come through it.
func (h *Health) Unheard() []netip.AddrPort {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(maps.Keys(h.unheard), netip.AddrPort.Compare)
}

// IsUnheard tells whether an endpoint is one of these.
func (h *Health) IsUnheard(at netip.AddrPort) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.unheard[at]
}

// FollowUnheard has f called when Unheard are others. Not while anything runs.
func (h *Health) FollowUnheard(f func()) { h.heard = f }

// FollowRoutes has endpoints to which f finds no route count as down. Call it before anything runs.
func (h *Health) FollowRoutes(f func(netip.Addr) error) { h.routeError = f }

// noRoute is why there is no route to an endpoint; nil: there is one, as far as is known.
func (h *Health) noRoute(a netip.Addr) error {
	if h.routeError == nil {
		return nil
	}
	return h.routeError(a)
}

// hear notes that an endpoint is unheard, or that clients have had an answer.
func (h *Health) hear(at netip.AddrPort, answered bool) {
	h.mu.Lock()
	if answered {
		delete(h.unheard, at)
	} else {
		h.unheard[at] = true
	}
	h.mu.Unlock()
	if h.heard != nil {
		h.heard()
	}
}

// follow has changes marked.
func (h *Health) follow(mark func(...lb.Key)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mark = mark
}

// Changed tells of what has become of a target: for health.Config.
func (h *Health) Changed(key string) {
	status, ok := h.probes.prober.Status(key)
	if !ok {
		return
	}
	at, news, users := h.probes.news(key, &status)
	h.again(users)
	for _, c := range news {
		e := event.Health{Endpoint: at, State: c.To.String(), Evidence: c.Evidence, Name: key, Services: firstOf(users), Users: len(users)}
		h.Events.Publish(e)
		if c.To != health.Down && c.From != health.Down || !h.mayLog() {
			continue
		}
		if c.To == health.Down {
			h.Log.Warn("endpoint is down", "endpoint", e.Object(), "evidence", c.Evidence, "services", namesOf(users))
		} else {
			h.Log.Info("endpoint is up again", "endpoint", e.Object(), "evidence", c.Evidence, "services", namesOf(users))
		}
	}
}

// firstOf names as many services as an event does.
func firstOf(users []lb.Key) (list []string) {
	const most = 3
	for _, k := range users[:min(len(users), most)] {
		list = append(list, k.String())
	}
	return list
}

// namesOf names services in a line of the log.
func namesOf(users []lb.Key) string {
	list := firstOf(users)
	if more := len(users) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}

// again has services applied that heed something else than before.
func (h *Health) again(services []lb.Key) {
	h.mu.Lock()
	mark := h.mark
	h.mu.Unlock()
	if mark != nil {
		mark(services...)
	}
}

// mayLog tells whether there is room for a line about one endpoint. What has none is counted, and told when the window closes.
func (h *Health) mayLog() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.logging {
		h.logging, h.logged, h.untold = true, 0, 0
		time.AfterFunc(logWindow, h.closeWindow)
	}
	if h.logged++; h.logged > logsInWindow {
		h.untold++
		return false
	}
	return true
}

func (h *Health) closeWindow() {
	h.mu.Lock()
	untold := h.untold
	h.logging = false
	h.mu.Unlock()
	if untold > 0 {
		h.Log.Warn("more endpoints have become up or down", "changes", untold, "hint", "loxicmd get endpoint")
	}
}

// news are the changes of a target that were not told yet, and which services heed it.
func (p *probes) news(key string, s *health.Status) (at netip.AddrPort, news []health.Change, users []lb.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.named[p.names[key]]
	if n == nil {
		return at, nil, nil
	}
	r := n.running[key]
	for _, c := range s.History {
		if !c.At.After(r.told) {
			continue
		}
		r.told = c.At
		r.changes++
		if c.From != health.Unknown || r.target.Probe.Type != lb.ProbeNone || c.To != health.Up { // taken to be up without being asked: no news
			news = append(news, c)
		}
	}
	return netip.AddrPortFrom(r.target.Addr, r.target.Port), news, n.usersOf(key)
}

// EndpointCount is how what is probed is, in numbers.
func (h *Health) EndpointCount() (count lb.HealthCount) {
	p := h.probes
	p.mu.Lock()
	defer p.mu.Unlock()
	var e lb.EndpointHealth
	for key, name := range p.names {
		state, _, ok := p.prober.State(key)
		if !ok {
			continue
		}
		n := p.named[name]
		t := &n.running[key].target
		e.Addr, e.Probe.Type, e.Probe.Port, e.Object, e.State = t.Addr, t.Probe.Type, t.Probe.Port, n.object != nil, lb.HealthState(state)
		count.Add(&e)
	}
	return count
}

// Endpoints yields all that is probed, in the order of names.
func (h *Health) Endpoints(yield func(*lb.EndpointHealth) bool) { h.EndpointsWhere(nil, yield) }

// EndpointsWhere yields what is probed and has a name and an address that are chosen, in the order of names.
func (h *Health) EndpointsWhere(chosen func(name string, at netip.Addr) bool, yield func(*lb.EndpointHealth) bool) {
	for _, one := range h.probes.inOrder() {
		if chosen != nil && !chosen(one.key, one.at) {
			continue
		}
		if e, ok := h.probes.health(one.key); ok && !yield(e) {
			return
		}
	}
}

// inOrder are all keys. It is made anew when there are others, and never changed.
func (p *probes) inOrder() []located {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sorted == nil {
		p.sorted = make([]located, 0, len(p.names))
		for at := range p.byAddr {
			for key := range p.byAddr.of(at) {
				p.sorted = append(p.sorted, located{key, at})
			}
		}
		slices.SortFunc(p.sorted, func(a, b located) int { return strings.Compare(a.key, b.key) })
	}
	return p.sorted
}

// EndpointsNamed yields what is probed by these names, or at these addresses, in the order of names.
func (h *Health) EndpointsNamed(names []string, yield func(*lb.EndpointHealth) bool) {
	p := h.probes
	var keys []string
	p.mu.Lock()
	for _, name := range names {
		if _, is := p.names[name]; is {
			keys = append(keys, name)
		}
		if a, err := netip.ParseAddr(name); err == nil {
			keys = slices.AppendSeq(keys, p.byAddr.of(a.Unmap()))
		}
	}
	p.mu.Unlock()
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		if e, ok := p.health(key); ok && !yield(e) {
			return
		}
	}
}

// health is what is known by a key.
func (p *probes) health(key string) (*lb.EndpointHealth, bool) {
	s, ok := p.prober.Status(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.named[p.names[key]]
	if !ok || n == nil {
		return nil, false
	}
	r := n.running[key]
	e := &lb.EndpointHealth{
		EndpointProbe: lb.EndpointProbe{Name: key, Addr: r.target.Addr, Probe: r.target.Probe},
		Object:        n.object != nil, Services: n.usersOf(key),
		State: lb.HealthState(s.State), Red: r.red, Since: s.Since, Checked: s.Checked, Evidence: s.Evidence,
		MinDelay: s.MinDelay, AvgDelay: s.AvgDelay, MaxDelay: s.MaxDelay,
		Failures: s.Failures, Successes: s.Successes, Changes: r.changes, Downs: s.Downs, Downtime: s.Downtime(time.Now()),
		Failed: s.Failed,
	}
	for _, c := range s.History {
		e.History = append(e.History, lb.HealthChange{At: c.At, From: lb.HealthState(c.From), To: lb.HealthState(c.To), Evidence: c.Evidence})
	}
	return e, true
}

// SetHostState takes an endpoint out, or leaves it to its probe again: all that is probed at the address, at this port (0: any) and by
// this type (lb.ProbeAuto: any), now and as long as anything is probed at the address. It returns how many targets that are now; if there
// are none, nothing is noted.
func (h *Health) SetHostState(a netip.Addr, port uint16, t lb.ProbeType, out bool) (found int) {
	p := h.probes
	p.mu.Lock()
	w := word{port: port, probe: t, red: out, since: time.Now()}
	moved, there := p.byPort(a, w)
	found = len(there)
	for key := range p.byAddr.of(a) {
		r := p.named[p.names[key]].running[key]
		there = append(there, &r.target)
		if w.covers(r.target.Port, r.target.Probe.Type) {
			p.setRed(key, r, out)
			found++
		}
	}
	if found > 0 {
		p.words.say(a, w, there)
	}
	p.mu.Unlock()
	h.again(moved)
	return found
}

// setRed takes a target out, or gives it back to its probe. The prober hears of it with p locked, in the order of what is noted here.
func (p *probes) setRed(key string, r *running, red bool) {
	r.red = red
	if red {
		p.prober.Override(key, health.Down, "an agent says that it is red")
	} else {
		p.prober.Override(key, health.Unknown, "")
	}
}
