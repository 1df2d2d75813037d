package httpapi

import (
	"context"
	"log/slog"
	"time"

	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/manifest"
	"loxilb/internal/control/desired"
	"loxilb/internal/lb"
)

// trafficDataPath is what the data path knows of traffic.
type trafficDataPath interface {
	// ConnectionsFrom calls yield for each direction of each connection that is sought, and perhaps
	// others, from a place on. It returns the place where yield returned false, whose connection is
	// the next to be yielded; 0: the end.
	ConnectionsFrom(ctx context.Context, from int, sought lb.Sought, yield func(lb.Connection) bool) (next int, err error)
	// EndConnections ends those that match, rate a second, from a place on. Some may be left when
	// ctx ends.
	EndConnections(ctx context.Context, from, rate int, matches func(*lb.Connection) bool) (lb.Ended, error)
	// WatchConnections calls yield, often, with what has become of connections, and what was not
	// told so far, until ctx ends or yield returns false. rate: so many events a second are wanted.
	WatchConnections(ctx context.Context, rate int, yield func([]lb.ConnectionEvent, lb.Untold) bool) error
	// RuleHits is what a firewall rule has decided about. false: the data path does not have it
	// (yet).
	RuleHits(r *lb.Rule) (lb.Traffic, bool)
	// PolicerStats is what a policer has said, and in how many places it is.
	PolicerStats(name string) lb.PolicerStats
	// MirrorStats is what a mirror has copied, and in how many places it is.
	MirrorStats(name string) lb.MirrorStats
}

// trafficOptions are the parts that the area stands on.
type trafficOptions struct {
	Objects  *objects.API
	Store    *desired.State
	DataPath trafficDataPath
	Reader   *rest.Reader
	Streams  *rest.Streams
	Log      *slog.Logger
}

// trafficAPI answers requests about firewall rules, policers, mirrors and connections.
type trafficAPI struct {
	trafficOptions
	walks    chan struct{} // holds a value for each walk through all connections
	walkWait time.Duration // walkWait, but in tests
	walkers  *rest.Shares  // of walks, running or waiting
	watchers *rest.Shares  // of connections
}

func newTrafficAPI(o trafficOptions) *trafficAPI {
	return &trafficAPI{
		trafficOptions: o, walks: make(chan struct{}, wholeWalks), walkWait: walkWait,
		walkers: rest.NewShares(wholeWalkers()), watchers: rest.NewShares(watches()),
	}
}

// objectKinds are the kinds of object of this area.
func (a *trafficAPI) objectKinds() []objects.Kind {
	return []objects.Kind{
		objects.KindOf(manifest.Policy, a.Store.Policers.Table, objects.Plain(policies().Read), showPolicy, policies().Problem),
		objects.KindOf(manifest.Mirror, a.Store.Mirrors.Table, objects.Plain(mirrors().Read), showMirror, mirrors().Problem),
		objects.KindOf(manifest.Firewall, a.Store.Rules.Table, objects.Plain(readRule), showRule, func(err error) *rest.Problem { return ruleProblem("", err) }),
	}
}
