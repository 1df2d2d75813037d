package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb"
)

// Tunnels are the programs of GTP-U.
type Tunnels interface {
	// PrepareGTP loads the programs. It returns an error if this machine cannot run them.
	PrepareGTP() error
	SetGTP(flows []datapath.GTPFlow, links datapath.GTPLinks) error
}

// TunnelLinks are the interfaces of GTP-U.
type TunnelLinks interface {
	// MakeGTP creates both interfaces, with routes to exactly these users. It returns their
	// indexes, and the name of the second one, where packets to users arrive. Without users, it
	// removes the interfaces.
	MakeGTP(users []netdev.MobileUser) (near, far int, name string, err error)
}

// GTP applies sessions of mobile users and their classifiers, all of them at once. A session
// without classifiers counts as applied; a classifier without session fails until the session
// exists.
type GTP struct {
	desired *desired.State
	tunnels Tunnels
	links   TunnelLinks

	mu       sync.Mutex        // one pass at a time, of either loop
	failing  map[string]string // why classifiers were not applied, by their keys
	sessions *gtpLoop[lb.Session]
	flows    *gtpLoop[lb.SessionFlow]
}

// NewGTP returns the loops of both kinds.
func NewGTP(s *desired.State, t Tunnels, l TunnelLinks, o Observers) *GTP {
	g := &GTP{desired: s, tunnels: t, links: l, failing: map[string]string{}}
	g.sessions, g.flows = newGTPLoop(g, s.Sessions, o), newGTPLoop(g, s.SessionFlows, o)
	g.sessions.applied = func() []string { return []string{allObjects} }
	g.sessions.Loop.name = func(key string) string { return cmp.Or(key, "all") }
	return g
}

// Run runs both loops until ctx ends.
func (g *GTP) Run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { g.sessions.Run(ctx) })
	both.Go(func() { g.flows.Run(ctx) })
	both.Wait()
}

// Idle returns channels that are closed once all objects were tried.
func (g *GTP) Idle() []<-chan struct{} {
	return []<-chan struct{}{g.sessions.Idle(), g.flows.Idle()}
}

// LinksChanged reports that any interface may have changed.
func (g *GTP) LinksChanged() { g.sessions.Mark(allObjects) }

// gtpLoop is the loop of one of the GTP kinds.
type gtpLoop[T any] struct {
	*objectLoop[T]
	gtp *GTP
}

func newGTPLoop[T any](g *GTP, table store.Table[T], o Observers) *gtpLoop[T] {
	l := &gtpLoop[T]{gtp: g}
	l.objectLoop = newObjectLoop(l, g.desired, table, o)
	l.together = true
	return l
}

// Apply applies all objects of both kinds.
func (l *gtpLoop[T]) Apply(_ context.Context, keys []string) (out []Outcome[string]) {
	l.gtp.mu.Lock()
	defer l.gtp.mu.Unlock()
	snapshot := l.desired.Snapshot()
	problems, err := l.gtp.apply(snapshot)
	for _, key := range keys {
		meta, exists := l.table.Meta(snapshot, key)
		o := Outcome[string]{Key: key, Version: meta.Version}
		if exists || key == allObjects {
			o.Err = err
		}
		if err == nil && l.table.Name() == l.gtp.flows.table.Name() {
			o.Err, o.Waits = problems[key], true
			l.gtp.record(key, o.Err)
		}
		out = append(out, o)
	}
	if err == nil {
		l.gtp.markOutdated(problems)
	}
	return out
}

// record records why a classifier was not applied; nil means that it was applied or deleted.
func (g *GTP) record(flow string, problem error) {
	if problem == nil {
		delete(g.failing, flow)
		return
	}
	g.failing[flow] = problem.Error()
}

// markOutdated marks classifiers whose statuses are outdated because a session or another
// classifier was added or removed.
func (g *GTP) markOutdated(problems map[string]error) {
	var outdated []string
	for flow, problem := range problems {
		if g.failing[flow] != problem.Error() {
			outdated = append(outdated, flow)
		}
	}
	for flow := range g.failing {
		if problems[flow] == nil {
			outdated = append(outdated, flow)
		}
	}
	g.flows.Mark(outdated...)
}

// apply applies the desired state. problems has, by key, why classifiers are not applied: the
// session does not exist, another classifier has the same user and address, or the addresses are of
// different IP versions.
func (g *GTP) apply(snapshot *store.Snapshot) (problems map[string]error, err error) {
	flows, users, problems := g.wanted(snapshot)
	// Users must have no routes to interfaces without programs: the programs are loaded before
	// the routes are added, and flows are removed before the interfaces.
	if len(flows) == 0 {
		err = g.tunnels.SetGTP(nil, datapath.GTPLinks{})
	} else {
		err = g.tunnels.PrepareGTP()
	}
	if err != nil {
		return nil, err
	}
	near, far, name, err := g.links.MakeGTP(users)
	if err != nil || len(flows) == 0 {
		return problems, err
	}
	return problems, g.tunnels.SetGTP(flows, datapath.GTPLinks{Near: near, Far: datapath.Interface{Index: far, Name: name}})
}

// wanted returns the classifiers that have a session, and their users with their base stations.
func (g *GTP) wanted(snapshot *store.Snapshot) (flows []datapath.GTPFlow, users []netdev.MobileUser, problems map[string]error) {
	type pair struct{ user, peer netip.Addr }
	seen := map[pair]string{}
	stations := map[netdev.MobileUser]bool{}
	problems = map[string]error{}
	list := slices.SortedFunc(g.desired.SessionFlows.All(snapshot), func(a, b lb.SessionFlow) int { return cmp.Compare(a.Key(), b.Key()) })
	for _, f := range list {
		s, exists := g.desired.Sessions.Get(snapshot, f.Session)
		if !exists {
			problems[f.Key()] = fmt.Errorf("session %q does not exist: create it, or delete the classifier", f.Session)
			continue
		}
		if s.User.Is4() != f.Peer.Is4() {
			problems[f.Key()] = fmt.Errorf("user %s and address %s are of different IP versions, so no packet matches: delete the classifier", s.User, f.Peer)
			continue
		}
		if other, exists := seen[pair{s.User, f.Peer}]; exists {
			problems[f.Key()] = fmt.Errorf("packets between user %s and %s belong to session %q: delete one of the two classifiers", s.User, f.Peer, other)
			continue
		}
		seen[pair{s.User, f.Peer}] = f.Session
		flows = append(flows, datapath.GTPFlow{User: s.User, Peer: f.Peer, Core: s.Core, Access: s.Access, QFI: f.QFI})
		stations[netdev.MobileUser{Addr: s.User, Access: s.Access.Addr}] = true
	}
	return flows, slices.Collect(maps.Keys(stations)), problems
}
