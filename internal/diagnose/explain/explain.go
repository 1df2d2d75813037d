// Package explain explains how a packet would be handled: it runs the data path's own program
// (datapath/dryrun), describes the result for users, and adds the state of endpoints, next hops and
// health.
package explain

import (
	"context"
	"errors"
	"net/netip"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/diagnose/rates"
	"loxilb/internal/kernel/datapath/attach"
	"loxilb/internal/kernel/datapath/connections"
	"loxilb/internal/kernel/datapath/dryrun"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb"
	"loxilb/internal/lb/bgp"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

// DataPath is the needed part of the data path.
type DataPath interface {
	DryRun() *dryrun.Runner
	Lookup(protocol lb.Protocol, from, to netip.AddrPort) (*connections.Tracked, error)
	ServiceStats(key lb.Key) (report.ServiceStats, bool)
	Interfaces() []attach.Interface // with its programs
	XDPInterfaces() (names []string, mode attach.XDPMode)
}

// Health returns the health of endpoints.
type Health interface {
	servicestate.Health
	EndpointsNamed(names []string, yield func(*report.EndpointHealth) bool)
	// HasAsymmetricReply reports whether an endpoint accepts connections of this machine, while
	// no client's SYN is answered through it.
	HasAsymmetricReply(at netip.AddrPort) bool
	// IPsecRefusal returns the policy of IPsec that refuses packets to an endpoint of a
	// service, or its answers.
	IPsecRefusal(s *lb.Service, e lb.Endpoint) (policy.IPsecRefusal, bool)
}

// Loads returns the load of endpoints.
type Loads interface {
	Endpoints(key lb.Key, endpoints int) []rates.Load
}

// Network is the needed part of the kernel's network.
type Network interface {
	Links() []netdev.Link
	RouteTo(ctx context.Context, host netip.Addr) (netdev.HostRoute, error)
	ReversePathFilter(link string) int
}

// Explainer answers questions, one at a time.
type Explainer struct {
	Desired      *desired.State
	DataPath     DataPath
	Health       Health
	Network      Network
	Loads        Loads
	LocalSockets bool // this machine's own sockets reach VIPs
	Gateways     bool // packets are sent to the node that owns their future source address

	// Announcements returns whether the VIPs of a service are announced by BGP; nil: BGP is
	// off.
	Announcements func(*lb.Service) []report.Announcement
	Sessions      func() []bgp.Session // with BGP neighbors; needed with Announcements

	turn, line chan struct{}
}

// waiting bounds the questions that wait for their turn. An answer takes a millisecond, the first
// one a third of a second.
const waiting = 16

// ErrBusy reports that too many questions wait.
var ErrBusy = errors.New("too many explain requests are waiting: try again in a second")

// New returns an Explainer of these parts.
func New(e Explainer) *Explainer {
	e.turn, e.line = make(chan struct{}, 1), make(chan struct{}, waiting)
	return &e
}

// Explain answers a question. It returns a *lb.FieldError if the question is invalid.
func (x *Explainer) Explain(ctx context.Context, q *Question) (*Answer, error) {
	if err := q.checkLength(); err != nil {
		return nil, err
	}
	select {
	case x.line <- struct{}{}:
		defer func() { <-x.line }()
	default:
		return nil, ErrBusy
	}
	select {
	case x.turn <- struct{}{}:
		defer func() { <-x.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	now := x.Desired.Snapshot()
	i := &inquiry{Explainer: x, ctx: ctx, now: now, services: x.Desired.Services.At(now), Question: *q}
	if err := i.checkTunnel(); err != nil {
		return nil, err
	}
	if q.Reverse || len(q.ConnectionID) == 0 && i.isEndpoint(q.To) && !i.services.HasVIP(q.To.Addr()) {
		return i.reach()
	}
	return i.packet()
}
