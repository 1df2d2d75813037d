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
	// MakeGTP has routes to these users lead to the interfaces, and returns the index of the one
	// where packets to them arrive. No users: it removes the interfaces.
	MakeGTP(users []netip.Addr) (far int, err error)
}

// GTP applies sessions of mobile users and their classifiers, all at once: a classifier without
// session, or a session without classifiers, counts as applied.
type GTP struct {
	desired *desired.State
	tunnels Tunnels
	links   TunnelLinks

	mu       sync.Mutex // the loops of both kinds apply
	sessions *gtpSessions
	flows    *gtpFlows
}

// NewGTP makes the loops of both kinds.
func NewGTP(s *desired.State, t Tunnels, l TunnelLinks, o Observers) *GTP {
	g := &GTP{desired: s, tunnels: t, links: l}
	a := &gtpSessions{gtp: g}
	a.objectLoop = newObjectLoop[lb.Session](a, s, s.Sessions, o)
	a.applied = func() []string { return []string{leftover} }
	a.Loop.name = func(key string) string { return cmp.Or(key, "all") }
	b := &gtpFlows{gtp: g}
	b.objectLoop = newObjectLoop[lb.SessionFlow](b, s, s.SessionFlows, o)
	g.sessions, g.flows = a, b
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

type gtpSessions struct {
	*objectLoop[lb.Session]
	gtp *GTP
}

type gtpFlows struct {
	*objectLoop[lb.SessionFlow]
	gtp *GTP
}

// Apply applies all of them.
func (l *gtpSessions) Apply(_ context.Context, keys []string) []Outcome[string] {
	return outcomesOf(l.table, l.gtp, keys)
}

// Apply applies all of them.
func (l *gtpFlows) Apply(_ context.Context, keys []string) []Outcome[string] {
	return outcomesOf(l.table, l.gtp, keys)
}

func outcomesOf[T any](table *store.Table[T], g *GTP, keys []string) (out []Outcome[string]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.desired.Snapshot()
	err := g.apply(now)
	for _, key := range keys {
		meta, there := table.Meta(now, key)
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
	far, err := g.links.MakeGTP(users)
	if err != nil || len(flows) == 0 {
		return err
	}
	return g.tunnels.SetGTP(flows, datapath.Interface{Index: far, Name: "llbgtp1"})
}
