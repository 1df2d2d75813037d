// Package traffic answers requests about rules for packets and about packets themselves: firewall
// rules, policers, mirrors, connections, clients and live packets.
package traffic

import (
	"context"
	"log/slog"
	"time"

	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/desired"
	"loxilb/internal/kinds"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

// DataPath is the part of the data path that this package reads.
type DataPath interface {
	// ConnectionsFrom calls yield for each direction of each selected connection, and perhaps of
	// others, starting from a position. It returns the position where yield returned false, which
	// is the next to yield; 0: the end.
	ConnectionsFrom(ctx context.Context, from int, sought report.ConnectionQuery, yield func(report.Connection) bool) (next int, err error)
	// EndConnections ends matching connections, at most rate per second, from a place on. Some may
	// be left when ctx ends.
	EndConnections(ctx context.Context, from, rate int, matches func(*report.Connection) bool) (report.Ended, error)
	// WatchConnections calls yield frequently with events of connections, and the number left out
	// so far, until ctx ends or yield returns false. rate is the wanted maximum of events per
	// second.
	WatchConnections(ctx context.Context, rate int, yield func([]report.ConnectionEvent, report.Omitted) bool) error
	// TracePackets calls yield frequently with packets that match the filter, and with the number
	// lost so far, until ctx ends or yield returns false.
	TracePackets(ctx context.Context, f report.TraceFilter, yield func([]report.PacketTrace, report.Omitted) bool) error
	// RuleHits returns the packets decided by a firewall rule, and whether the data path has the
	// rule.
	RuleHits(r *policy.Rule) (report.Traffic, bool)
	// PolicerStats returns a policer's counts, and the number of places with it.
	PolicerStats(name string) policy.PolicerStats
	// MirrorStats returns a mirror's counts, and the number of places with it.
	MirrorStats(name string) policy.MirrorStats
}

// Options are the dependencies of API.
type Options struct {
	Objects    *objects.API
	Interfaces func() map[int]string // the names of this network namespace, by index
	Store      *desired.State
	DataPath   DataPath
	Reader     *rest.Reader
	Streams    *rest.Streams
	Log        *slog.Logger
}

// API answers requests about firewall rules, policers, mirrors and connections.
type API struct {
	Options
	Walks    chan struct{} // holds a value for each walk through all connections
	WalkWait time.Duration // walkWait, but in tests
	Walkers  *rest.Shares  // of walks, running or waiting
	Watchers *rest.Shares  // of connections
}

// New returns an API.
func New(o Options) *API {
	a := &API{
		Options: o, Walks: make(chan struct{}, WholeWalks), WalkWait: WalkWait,
		Walkers: rest.NewShares(WholeWalkers()), Watchers: rest.NewShares(watches()),
	}
	a.count()
	return a
}

// ObjectKinds returns the kinds of object of this package.
func (a *API) ObjectKinds() []objects.Kind {
	return []objects.Kind{
		objects.KindOf(kinds.Rule().Words, a.Store.Rules, objects.Plain(readRule), showRule, func(err error) *rest.Problem { return ruleProblem("", err) }),
	}
}
