// Package probe checks the health of endpoints: one file for each type of probe (docs/health.md).
package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"loxilb/internal/lb"
)

// Question is a probe and its target. All members of the probe are set: no defaults are left to be
// filled in.
type Question struct {
	To   netip.AddrPort
	From netip.Addr // zero: the kernel's choice
	// In mode dsr, To is a VIP. The socket is connected to Endpoint, the endpoint's own
	// address, so the kernel routes its packets there; Redirect makes them carry the VIP as
	// destination. In other modes, Redirect is nil, and To is the endpoint.
	Endpoint    netip.Addr
	Redirect    func(fd int) error
	ProxyHeader bool // begin TCP connections that carry data with a PROXY protocol header
	Probe       lb.Probe
}

// target returns the address that a socket is connected to.
func (q Question) target() netip.AddrPort {
	if q.Redirect == nil {
		return q.To
	}
	return netip.AddrPortFrom(q.Endpoint, q.To.Port())
}

// Answer is a successful result. A Prober returns an error for any other result.
type Answer struct {
	What  string        // "status 200"
	Delay time.Duration // from the request to the answer; 0: not measured
}

// Prober repeats one probe.
type Prober interface {
	// Probe probes once, until ctx ends at the latest. An error is no evidence about the
	// endpoint if it wraps ErrNotSent or ErrUndecided.
	Probe(ctx context.Context) (Answer, error)
}

// ErrNotSent is wrapped by errors of this machine that prevented a probe.
var ErrNotSent = errors.New("cannot be probed")

// ErrUndecided is wrapped by errors that are no evidence about the endpoint.
var ErrUndecided = errors.New("is inconclusive")

// New returns the prober of a question.
func New(q Question, shared *Sockets, files Files) Prober {
	switch q.Probe.Type {
	case lb.ProbePing:
		return ping{q, shared}
	case lb.ProbeSCTP:
		return association{q, shared}
	case lb.ProbeTCP:
		return stream{q}
	case lb.ProbeHTTP, lb.ProbeHTTPS:
		return newWeb(q, files)
	case lb.ProbeUDP:
		return newDatagram(q)
	case lb.ProbeGRPC:
		return newCall(q, files)
	case lb.ProbeDNS:
		return name{q}
	}
	return unknown{q.Probe.Type}
}

// Remember passes another prober's knowledge of the same address and port to a prober.
func Remember(p, before Prober) {
	to, udp := p.(*datagram)
	from, was := before.(*datagram)
	if udp && was {
		to.refused = from.refused
	}
}

// unknown is a prober of a type that this version does not know.
type unknown struct{ kind lb.ProbeType }

func (u unknown) Probe(context.Context) (Answer, error) {
	return Answer{}, fmt.Errorf("%w: no probe of type %v", ErrNotSent, u.kind)
}
