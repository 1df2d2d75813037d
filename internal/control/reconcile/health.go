package reconcile

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/health"
	"loxilb/internal/event"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// Health probes endpoints, publishes changes of their health, and marks the services that consider
// it.
type Health struct {
	Observers
	probes *probes

	mu                sync.Mutex
	mark              func(...lb.Key) // nil: no services loop yet
	logged            int             // changes in this logWindow
	suppressed        int             // changes not logged
	windowOpen        bool
	asymmetric        map[netip.AddrPort]bool
	asymmetricChanged func() // may be nil

	routeError func(netip.Addr) error // why an address has no route; nil: unknown
}

const (
	// In each logWindow, logsInWindow changes are logged one by one: thousands of endpoints may
	// fail at once. There are events of all changes.
	logWindow    = 5 * time.Second
	logsInWindow = 20
)

// NewHealth returns a Health that probes endpoints by p. The caller must call Changed for each
// change of the state of a key of p.
func NewHealth(p Prober, o Observers) *Health {
	return &Health{Observers: o, probes: newProbes(p), asymmetric: map[netip.AddrPort]bool{}}
}

// AsymmetricReplies returns the endpoints that accept this machine's own connections, but whose
// answers to clients' SYNs do not come back through it.
func (h *Health) AsymmetricReplies() []netip.AddrPort {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(maps.Keys(h.asymmetric), netip.AddrPort.Compare)
}

// HasAsymmetricReply reports whether AsymmetricReplies lists an endpoint.
func (h *Health) HasAsymmetricReply(at netip.AddrPort) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asymmetric[at]
}

// FollowAsymmetricReplies sets the function that is called when AsymmetricReplies changes. It must
// be called before anything runs.
func (h *Health) FollowAsymmetricReplies(f func()) { h.asymmetricChanged = f }

// SetRouteCheck sets the function that returns an error if an endpoint has no route. Such endpoints
// count as down. It must be called before anything runs.
func (h *Health) SetRouteCheck(f func(netip.Addr) error) { h.routeError = f }

// noRoute returns why an endpoint has no route; nil if it has one or that is unknown.
func (h *Health) noRoute(a netip.Addr) error {
	if h.routeError == nil {
		return nil
	}
	return h.routeError(a)
}

// recordReply records whether an endpoint answers clients through this machine.
func (h *Health) recordReply(at netip.AddrPort, answered bool) {
	h.mu.Lock()
	if answered {
		delete(h.asymmetric, at)
	} else {
		h.asymmetric[at] = true
	}
	h.mu.Unlock()
	if h.asymmetricChanged != nil {
		h.asymmetricChanged()
	}
}

// setMark sets the function that marks services to be applied again.
func (h *Health) setMark(mark func(...lb.Key)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mark = mark
}

// Changed publishes the changes of a target, and marks its services. It is meant for health.Config.
func (h *Health) Changed(key string) {
	status, ok := h.probes.prober.Status(key)
	if !ok {
		return
	}
	at, changes, users := h.probes.unreported(key, &status)
	h.markServices(users)
	for _, c := range changes {
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

// firstOf returns the first services, as many as an event lists.
func firstOf(users []lb.Key) (list []string) {
	const most = 3
	for _, k := range users[:min(len(users), most)] {
		list = append(list, k.String())
	}
	return list
}

// namesOf returns services in the form of a log line.
func namesOf(users []lb.Key) string {
	list := firstOf(users)
	if more := len(users) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}

// markServices marks services whose health has changed, so they are applied again.
func (h *Health) markServices(services []lb.Key) {
	h.mu.Lock()
	mark := h.mark
	h.mu.Unlock()
	if mark != nil {
		mark(services...)
	}
}

// mayLog reports whether a change may be logged by itself. Others are counted, and logged together
// when the window closes.
func (h *Health) mayLog() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.windowOpen {
		h.windowOpen, h.logged, h.suppressed = true, 0, 0
		time.AfterFunc(logWindow, h.closeWindow)
	}
	if h.logged++; h.logged > logsInWindow {
		h.suppressed++
		return false
	}
	return true
}

func (h *Health) closeWindow() {
	h.mu.Lock()
	suppressed := h.suppressed
	h.windowOpen = false
	h.mu.Unlock()
	if suppressed > 0 {
		h.Log.Warn("more endpoints have become up or down", "changes", suppressed, "hint", "loxicmd get endpoint")
	}
}

// unreported returns a target's changes that were not reported yet, and the services that consider
// them.
func (p *probes) unreported(key string, s *health.Status) (at netip.AddrPort, changes []health.Change, users []lb.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.groups[p.names[key]]
	if g == nil {
		return at, nil, nil
	}
	r := g.probes[key]
	for _, c := range s.History {
		if !c.At.After(r.reported) {
			continue
		}
		r.reported = c.At
		r.changes++
		if c.From != health.Unknown || r.target.Probe.Type != lb.ProbeNone || c.To != health.Up { // up without a probe: no change
			changes = append(changes, c)
		}
	}
	return netip.AddrPortFrom(r.target.Addr, r.target.Port), changes, g.usersOf(key)
}

// EndpointCount counts the probed endpoints by health.
func (h *Health) EndpointCount() (count report.HealthCount) {
	p := h.probes
	p.mu.Lock()
	defer p.mu.Unlock()
	var e report.EndpointHealth
	for key, name := range p.names {
		state, _, ok := p.prober.State(key)
		if !ok {
			continue
		}
		g := p.groups[name]
		t := &g.probes[key].target
		e.Addr, e.Probe.Type, e.Probe.Port, e.Object, e.State = t.Addr, t.Probe.Type, t.Probe.Port, g.object != nil, report.HealthState(state)
		count.Add(&e)
	}
	return count
}

// Endpoints yields all probed targets in the order of names.
func (h *Health) Endpoints(yield func(*report.EndpointHealth) bool) { h.EndpointsWhere(nil, yield) }

// EndpointsWhere yields the probed targets that chosen accepts, in the order of names; nil accepts
// all.
func (h *Health) EndpointsWhere(chosen func(name string, at netip.Addr) bool, yield func(*report.EndpointHealth) bool) {
	for _, one := range h.probes.inOrder() {
		if chosen != nil && !chosen(one.key, one.addr) {
			continue
		}
		if e, ok := h.probes.health(one.key); ok && !yield(e) {
			return
		}
	}
}

// inOrder returns all keys in order. The slice is rebuilt after a change, and never modified.
func (p *probes) inOrder() []keyAddr {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sorted == nil {
		p.sorted = make([]keyAddr, 0, len(p.names))
		for at := range p.byAddr {
			for key := range p.byAddr.of(at) {
				p.sorted = append(p.sorted, keyAddr{key, at})
			}
		}
		slices.SortFunc(p.sorted, func(a, b keyAddr) int { return strings.Compare(a.key, b.key) })
	}
	return p.sorted
}

// EndpointsNamed yields the probed targets with these names, or with their addresses, in
// the order of names.
func (h *Health) EndpointsNamed(names []string, yield func(*report.EndpointHealth) bool) {
	p := h.probes
	var keys []string
	p.mu.Lock()
	for _, name := range names {
		if _, exists := p.names[name]; exists {
			keys = append(keys, name)
		}
		if a, ok := lb.AddressOf(name); ok {
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

// health returns the health of a key.
func (p *probes) health(key string) (*report.EndpointHealth, bool) {
	s, ok := p.prober.Status(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.groups[p.names[key]]
	if !ok || g == nil {
		return nil, false
	}
	r := g.probes[key]
	e := &report.EndpointHealth{
		EndpointProbe: lb.EndpointProbe{Name: key, Addr: r.target.Addr, Probe: r.target.Probe},
		Object:        g.object != nil, Services: g.usersOf(key),
		State: report.HealthState(s.State), AgentDown: r.agentDown, Since: s.Since, Checked: s.Checked, Evidence: s.Evidence,
		MinDelay: s.MinDelay, AvgDelay: s.AvgDelay, MaxDelay: s.MaxDelay,
		Failures: s.Failures, Successes: s.Successes, Changes: r.changes, Downs: s.Downs, Downtime: s.Downtime(time.Now()),
		Failed: s.Failed,
	}
	for _, c := range s.History {
		e.History = append(e.History, report.HealthChange{At: c.At, From: report.HealthState(c.From), To: report.HealthState(c.To), Evidence: c.Evidence})
	}
	return e, true
}

// EndpointProbes applies users' endpoint objects, which define probes.
type EndpointProbes struct {
	*objectLoop[lb.EndpointProbe]
	health *Health
}

// NewEndpointProbes returns the loop of the objects.
func NewEndpointProbes(s *desired.State, h *Health, o Observers) *EndpointProbes {
	p := &EndpointProbes{health: h}
	p.objectLoop = newObjectLoop(p, s, s.Endpoints, o)
	p.applied = h.probes.objects
	return p
}

// Apply starts, changes and stops the probes of these objects. It never fails.
func (p *EndpointProbes) Apply(_ context.Context, keys []string) []Outcome[string] {
	var moved []lb.Key
	out := p.applyEach(p.desired.Snapshot(), keys, func(e lb.EndpointProbe, exists bool, key string) error {
		object := &e
		if !exists {
			object = nil
		}
		moved = append(moved, p.health.probes.setObject(key, object)...)
		return nil
	})
	p.health.markServices(moved)
	return out
}
