package reconcile

import (
	"cmp"
	"context"
	"net/netip"
	"sync"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/lb"
)

// Tunnels are the programs of GTP-U.
type Tunnels interface {
	SetGTP(flows []datapath.GTPFlow, down datapath.Interface) error
}

// TunnelLinks are the interfaces of GTP-U.
type TunnelLinks interface {
	// MakeGTP has routes to these users lead to the interfaces, and returns index and name of
	// the one where packets to them arrive. No users: it removes the interfaces.
	MakeGTP(users []netip.Addr) (far int, name string, err error)
}

// GTP applies sessions of mobile users and their classifiers, all at once: a classifier without
// session, or a session without classifiers, counts as applied.
type GTP struct {
	desired *desired.State
	tunnels Tunnels
	links   TunnelLinks

	mu       sync.Mutex // the loops of both kinds apply
	sessions *gtpLoop[lb.Session]
	flows    *gtpLoop[lb.SessionFlow]
}

// NewGTP makes the loops of both kinds.
func NewGTP(s *desired.State, t Tunnels, l TunnelLinks, o Observers) *GTP {
	g := &GTP{desired: s, tunnels: t, links: l}
	g.sessions, g.flows = newGTPLoop(g, s.Sessions, o), newGTPLoop(g, s.SessionFlows, o)
	g.sessions.applied = func() []string { return []string{leftover} }
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
func (g *GTP) LinksChanged() { g.sessions.Mark(leftover) }

// gtpLoop is the loop of one of the kinds.
type gtpLoop[T any] struct {
	*objectLoop[T]
	gtp *GTP
}

func newGTPLoop[T any](g *GTP, table *store.Table[T], o Observers) *gtpLoop[T] {
	l := &gtpLoop[T]{gtp: g}
	l.objectLoop = newObjectLoop(l, g.desired, table, o)
	return l
}

// Apply applies all objects of both kinds.
func (l *gtpLoop[T]) Apply(_ context.Context, keys []string) (out []Outcome[string]) {
	l.gtp.mu.Lock()
	defer l.gtp.mu.Unlock()
	now := l.desired.Snapshot()
	err := l.gtp.apply(now)
	for _, key := range keys {
		meta, there := l.table.Meta(now, key)
		o := Outcome[string]{Key: key, Version: meta.Version}
		if there || key == leftover {
			o.Err = err
		}
		out = append(out, o)
	}
	return out
}

func (g *GTP) apply(now *store.Snapshot) error {
	var flows []datapath.GTPFlow
	seen := map[netip.Addr]bool{}
	var users []netip.Addr
	for f := range g.desired.SessionFlows.All(now) {
		s, there := g.desired.Sessions.Get(now, f.Session)
		if !there {
			continue
		}
		flows = append(flows, datapath.GTPFlow{User: s.User, Peer: f.Peer, Core: s.Core, Access: s.Access, QFI: f.QFI})
		if !seen[s.User] {
			seen[s.User] = true
			users = append(users, s.User)
		}
	}
	if len(flows) == 0 { // first the programs, then the interfaces
		if err := g.tunnels.SetGTP(nil, datapath.Interface{}); err != nil {
			return err
		}
	}
	far, name, err := g.links.MakeGTP(users)
	if err != nil || len(flows) == 0 {
		return err
	}
	return g.tunnels.SetGTP(flows, datapath.Interface{Index: far, Name: name})
}
