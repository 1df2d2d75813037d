package reconcile

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/control/store"
	"loxilb/internal/event"
	"loxilb/internal/lb"
	"loxilb/internal/lb/bgp"
	"loxilb/internal/lb/report"
)

const (
	// routesDeadline is how long routes wait for the data path: later, neighbors with graceful
	// restart would drop the routes of services that work.
	routesDeadline = time.Minute
	// firstRoutesWait is how long the first routes wait for the first probes of endpoints.
	firstRoutesWait = 10 * time.Second
	// releasedWait is how long a VIP of several services waits for all of them once the node is
	// no longer held: on a node that was cut off, all endpoints are still down.
	releasedWait = 3 * time.Second
	// routesRecheck is how often all services are checked, for causes that do not mark
	// services, such as handshakes that fail.
	routesRecheck = 10 * time.Second
)

// Announcer announces routes: a *speaker.Speaker.
type Announcer interface {
	// SetRoutes replaces all routes. Neighbors receive only differences.
	SetRoutes(ctx context.Context, routes []bgp.Route) error
}

// RoutesConfig has the dependencies of Routes. All members are needed.
type RoutesConfig struct {
	Observers
	Desired   *desired.State
	Announcer Announcer
	Health    servicestate.Health
	// Receiving returns which endpoints of a service get new connections, in the user's order;
	// false: the data path does not have the service.
	Receiving func(lb.Key) ([]bool, bool)
	// Held returns why nothing may be announced although the data path is ready; empty if
	// routes may be announced.
	Held func() string
}

// Routes announces the VIPs of services with BGP that this node can serve. It decides only about
// the prefixes of marked services, so a change of one service costs the same for any number of
// services, except for the list of all routes.
type Routes struct {
	RoutesConfig
	task *Task

	opened   chan struct{} // closed: the data path is ready
	openOnce sync.Once
	current  chan struct{} // closed: the first routes are announced

	mu    sync.Mutex
	dirty map[lb.Key]struct{}
	all   bool // all services must be checked

	view     sync.RWMutex                  // guards the members below; only the loop writes them
	prefixes map[netip.Prefix]*prefixState // prefixes that a service claims
	services map[lb.Key]claimant
	roles    map[string]lb.Instance
	stage    lb.Stage
	held     string    // result of Held
	released time.Time // when held last became empty
	isOpen   bool      // routes may be announced

	// touched by the loop only
	firstTry time.Time    // when the data path was ready
	pending  bool         // the announcer does not have the current routes
	events   []event.Body // published once it has them
	applied  lb.Stage     // the announcer's stage
}

// claimant is a service that claims prefixes.
type claimant struct {
	compile.Claim
	prefixes []netip.Prefix
}

// prefixState is the services that claim a prefix, and the decision about it.
type prefixState struct {
	keys []lb.Key // of the services that claim it, in order
	compile.Decision
	since time.Time
}

// NewRoutes returns the loop. Nothing is announced before Open.
func NewRoutes(c RoutesConfig) *Routes {
	r := &Routes{
		RoutesConfig: c, opened: make(chan struct{}), current: make(chan struct{}), all: true, dirty: map[lb.Key]struct{}{},
		prefixes: map[netip.Prefix]*prefixState{}, services: map[lb.Key]claimant{}, stage: lb.InService,
	}
	r.task = NewTask("routes", 0, r.apply, c.Observers)
	r.task.watch, r.task.feed = c.Desired.Changed, r.feed
	return r
}

// Open reports that the data path is complete: routes are announced from now on.
func (r *Routes) Open() { r.openOnce.Do(func() { close(r.opened) }) }

// Current is closed once the announcer has all routes.
func (r *Routes) Current() <-chan struct{} { return r.current }

// Mark reports that services, or the states of their endpoints, may have changed.
func (r *Routes) Mark(keys ...lb.Key) {
	r.mu.Lock()
	for _, key := range keys {
		r.dirty[key] = struct{}{}
	}
	r.mu.Unlock()
	r.task.Mark()
}

// MarkAll reports that all services may have changed.
func (r *Routes) MarkAll() {
	r.mu.Lock()
	r.all = true
	r.mu.Unlock()
	r.task.Mark()
}

// Run announces until ctx ends.
func (r *Routes) Run(ctx context.Context) {
	var helper sync.WaitGroup
	defer helper.Wait()
	helper.Go(func() { r.recheck(ctx) })
	r.task.Run(ctx)
}

// recheck calls Open at the deadline, and marks all services every routesRecheck.
func (r *Routes) recheck(ctx context.Context) {
	deadline := time.After(routesDeadline)
	tick := time.NewTicker(routesRecheck)
	defer tick.Stop()
	opened := r.opened
	for {
		select {
		case <-ctx.Done():
			return
		case <-opened:
			opened = nil
		case <-deadline:
			r.Open()
		case <-tick.C:
		}
		r.MarkAll()
	}
}

// feed marks the task if roles or maintenance have changed. FollowPasses of Services marks services
// once the data path has them.
func (r *Routes) feed(context.Context) {
	snapshot := r.Desired.Snapshot()
	if r.stage != r.Desired.Maintenance.OfThisNode(snapshot).Stage() || !maps.Equal(r.roles, r.Desired.Instances.OfThisNode(snapshot)) {
		r.task.Mark()
	}
}

// apply decides about marked services, and announces the routes if they differ.
func (r *Routes) apply(ctx context.Context) error {
	r.mu.Lock()
	dirty, all := r.dirty, r.all
	r.dirty, r.all = map[lb.Key]struct{}{}, false
	r.mu.Unlock()

	r.view.Lock()
	touched := r.updateClaims(r.Desired.Snapshot(), dirty, all)
	events, changed := r.decide(touched)
	switch {
	case r.isOpen:
		r.events = append(r.events, events...)
	case r.mayOpen():
		r.isOpen, changed = true, true
		r.events = r.firstEvents()
	}
	isOpen, stage := r.isOpen, r.stage
	r.pending = r.pending || changed
	var routes []bgp.Route
	if isOpen && r.pending {
		routes = r.routes()
	}
	r.view.Unlock()
	if !isOpen {
		return nil
	}
	if r.pending {
		if err := r.Announcer.SetRoutes(ctx, routes); err != nil {
			return fmt.Errorf("announce %d routes: %w", len(routes), err)
		}
		r.pending = false
	}
	r.setApplied(stage)
	r.publish(r.events)
	r.events = nil
	return nil
}

// mayOpen reports whether the first routes may be announced: the data path is ready, and no
// decision waits for a first probe, or firstRoutesWait has passed.
func (r *Routes) mayOpen() bool {
	select {
	case <-r.opened:
	default:
		return false
	}
	if r.firstTry.IsZero() {
		r.firstTry = time.Now()
		time.AfterFunc(firstRoutesWait, r.MarkAll)
	}
	if time.Since(r.firstTry) >= firstRoutesWait {
		return true
	}
	for _, c := range r.services {
		if c.Unprobed {
			return false
		}
	}
	return true
}

// firstEvents returns the events of the first routes.
func (r *Routes) firstEvents() (events []event.Body) {
	for prefix, a := range r.prefixes {
		a.since = time.Now()
		if a.Announced {
			events = append(events, event.VIP{Prefix: prefix, Action: event.Announced, Why: a.Why})
		}
	}
	return events
}

// updateClaims updates the claims, and returns the prefixes that must be decided.
func (r *Routes) updateClaims(snapshot *store.Snapshot, dirty map[lb.Key]struct{}, all bool) map[netip.Prefix]struct{} {
	touched := map[netip.Prefix]struct{}{}
	if stage := r.Desired.Maintenance.OfThisNode(snapshot).Stage(); stage != r.stage {
		r.stage = stage
		touched = keySetOf(r.prefixes)
	}
	if held := r.Held(); held != r.held {
		if r.held = held; held == "" && r.isOpen {
			r.released = time.Now()
			time.AfterFunc(releasedWait, r.MarkAll)
		}
		touched = keySetOf(r.prefixes)
	}
	if roles := r.Desired.Instances.OfThisNode(snapshot); !maps.Equal(roles, r.roles) {
		r.roles = roles
		r.assignRoles(touched)
	}
	drains := servicestate.DrainsOf(r.Desired.Drains.All(snapshot))
	if all {
		for key := range r.services {
			dirty[key] = struct{}{}
		}
		for s := range r.Desired.Services.EachShared(snapshot) {
			if s.BGP {
				dirty[s.Key] = struct{}{}
			}
		}
	}
	for key := range dirty {
		r.updateClaim(snapshot, key, drains, touched)
	}
	return touched
}

func keySetOf[K comparable, V any](m map[K]V) map[K]struct{} {
	set := make(map[K]struct{}, len(m))
	for k := range m {
		set[k] = struct{}{}
	}
	return set
}

// assignRoles updates the roles in all claims.
func (r *Routes) assignRoles(touched map[netip.Prefix]struct{}) {
	for key, c := range r.services {
		if role := r.roles[c.Instance].Role; role != c.Role {
			c.Role = role
			r.services[key] = c
			for _, p := range c.prefixes {
				touched[p] = struct{}{}
			}
		}
	}
}

// updateClaim updates the claims of one service.
func (r *Routes) updateClaim(snapshot *store.Snapshot, key lb.Key, drains servicestate.Drains, touched map[netip.Prefix]struct{}) {
	before := r.services[key]
	var after claimant
	if s, _ := r.Desired.Services.Shared(snapshot, key); s != nil && s.BGP {
		after.prefixes = s.AnnouncedPrefixes()
		after.Announcement, after.Instance = s.Announcement, s.Instance()
		after.Role = r.roles[after.Instance].Role
		after.Applied, after.Serving, after.Unprobed = r.serving(s, drains, before.Serving)
	}
	if !slices.Equal(before.prefixes, after.prefixes) {
		for _, p := range before.prefixes {
			r.release(p, key)
			touched[p] = struct{}{}
		}
		for _, p := range after.prefixes {
			r.claim(p, key)
		}
	}
	for _, p := range after.prefixes {
		touched[p] = struct{}{}
	}
	if len(after.prefixes) > 0 {
		r.services[key] = after
	} else {
		delete(r.services, key)
	}
}

// claim adds a service's claim on a prefix.
func (r *Routes) claim(p netip.Prefix, key lb.Key) {
	a := r.prefixes[p]
	if a == nil {
		a = &prefixState{since: time.Now()}
		r.prefixes[p] = a
	}
	if i, exists := slices.BinarySearchFunc(a.keys, key, lb.Key.Compare); !exists {
		a.keys = slices.Insert(a.keys, i, key)
	}
}

// release undoes claim. A prefix without claims stays until it is decided.
func (r *Routes) release(p netip.Prefix, key lb.Key) {
	if a := r.prefixes[p]; a != nil {
		a.keys = slices.DeleteFunc(a.keys, func(k lb.Key) bool { return k == key })
	}
}

// serving reports whether the data path has a service, and whether an endpoint serves. While the
// endpoints that get connections were not probed yet, the previous result stays.
func (r *Routes) serving(s *lb.Service, drains servicestate.Drains, before bool) (inPlace, serving, unprobed bool) {
	receiving, inPlace := r.Receiving(s.Key)
	if !inPlace {
		return false, false, false
	}
	var stats report.ServiceStats
	stats.Endpoints = make([]report.EndpointStats, len(receiving))
	for i, available := range receiving {
		stats.Endpoints[i].Available = available
	}
	endpoints := servicestate.Gather(s, &stats, drains, r.Health)
	states := servicestate.Of(endpoints, servicestate.SyncApplied)
	for i, state := range states.Endpoints {
		if !endpoints[i].Available {
			continue
		}
		switch {
		case state == servicestate.Up, state == servicestate.Unprobed && !s.IsProbed(s.Endpoints[i]):
			return true, true, false
		case state == servicestate.Unprobed:
			unprobed = true
		}
	}
	return true, unprobed && before, unprobed && !before
}

// decide decides about prefixes, and returns the changes.
func (r *Routes) decide(touched map[netip.Prefix]struct{}) (events []event.Body, changed bool) {
	claims := make([]compile.Claim, 0, 8)
	for p := range touched {
		a := r.prefixes[p]
		claims = claims[:0]
		for _, key := range a.keys {
			claims = append(claims, r.services[key].Claim)
		}
		d := compile.Decide(claims, r.stage)
		switch {
		case r.held != "":
			d = compile.Decision{Why: r.held}
		case d.Announced && !a.Announced && time.Since(r.released) < releasedWait && slices.ContainsFunc(claims, func(c compile.Claim) bool { return c.Refuses() }):
			d = compile.Decision{Why: "the node has just returned, and another service of the VIP has no endpoint yet"}
		}
		if len(claims) == 0 {
			d.Why = "no service has it"
			delete(r.prefixes, p)
		}
		before := a.Decision
		a.Decision = d
		if before.Announced != d.Announced {
			a.since = time.Now()
			events = append(events, eventOf(p, &d))
		}
		changed = changed || before.Announced != d.Announced || d.Announced && !sameAttributes(&before.Attributes, &d.Attributes)
	}
	return events, changed
}

func sameAttributes(a, b *bgp.Attributes) bool {
	return a.MED == b.MED && a.LocalPref == b.LocalPref && a.Prepend == b.Prepend && slices.Equal(a.Communities, b.Communities)
}

func eventOf(p netip.Prefix, d *compile.Decision) event.VIP {
	if d.Announced {
		return event.VIP{Prefix: p, Action: event.Announced, Why: d.Why}
	}
	return event.VIP{Prefix: p, Action: event.Withdrawn, Why: d.Why}
}

// routes returns the routes of all prefixes that are announced.
func (r *Routes) routes() []bgp.Route {
	list := make([]bgp.Route, 0, len(r.prefixes))
	for p, a := range r.prefixes {
		if a.Announced {
			list = append(list, a.Route(p))
		}
	}
	return list
}

// publish reports changes: all as events, the first ones in the log.
func (r *Routes) publish(events []event.Body) {
	r.Events.Publish(events...)
	for _, e := range events[:min(len(events), loggedOutcomes)] {
		v := e.(event.VIP)
		r.Log.Info("announcement of a VIP", "prefix", v.Prefix, "action", v.Action, "reason", v.Why)
	}
	if more := len(events) - loggedOutcomes; more > 0 {
		r.Log.Info("more VIPs were announced or withdrawn", "count", more, "hint", "loxicmd get events --kind=vip")
	}
}

// setApplied records the stage of maintenance that neighbors know, and that routes are announced.
func (r *Routes) setApplied(stage lb.Stage) {
	r.view.Lock()
	r.applied = stage
	r.view.Unlock()
	select {
	case <-r.current:
	default:
		close(r.current)
	}
}

// Applied returns the stage of maintenance that the announced routes have.
func (r *Routes) Applied() lb.Stage {
	r.view.RLock()
	defer r.view.RUnlock()
	return r.applied
}

// starting is the reason why nothing is announced before Open.
const starting = "the data path is starting"

// Announcements returns the decisions about the prefixes of a service.
func (r *Routes) Announcements(s *lb.Service) (list []report.Announcement) {
	r.view.RLock()
	defer r.view.RUnlock()
	for _, p := range s.AnnouncedPrefixes() {
		one := report.Announcement{Prefix: p, Why: "the service is not in the data path"}
		if a := r.prefixes[p]; a != nil {
			one = r.report(p, a)
		}
		list = append(list, one)
	}
	return list
}

// All returns the decisions about all prefixes, in order.
func (r *Routes) All() []report.Announcement {
	r.view.RLock()
	defer r.view.RUnlock()
	list := make([]report.Announcement, 0, len(r.prefixes))
	for p, a := range r.prefixes {
		list = append(list, r.report(p, a))
	}
	slices.SortFunc(list, func(a, b report.Announcement) int { return lb.ComparePrefix(a.Prefix, b.Prefix) })
	return list
}

func (r *Routes) report(p netip.Prefix, a *prefixState) report.Announcement {
	if !r.isOpen {
		return report.Announcement{Prefix: p, Why: starting, Since: a.since}
	}
	return report.Announcement{Prefix: p, Announced: a.Announced, Why: a.Why, Since: a.since}
}
