// Package probe asks endpoints whether they are well: one file for each way to ask
// (docs/health.md).
package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"loxilb/internal/lb"
)

// Question is what is asked of whom. All members of the probe are given: no defaults are left to be
// filled in.
type Question struct {
	To   netip.AddrPort
	From netip.Addr // zero: the kernel's choice
	// In mode dsr, To is a VIP, and the endpoint has another address by which it is found. Lead has
	// what a socket sends to that one go to the VIP there, and is called before it sends; nil: To
	// is the endpoint's own.
	At    netip.Addr
	Lead  func(fd int) error
	Probe lb.Probe
}

// target is what a socket is connected to.
func (q Question) target() netip.AddrPort {
	if q.Lead == nil {
		return q.To
	}
	return netip.AddrPortFrom(q.At, q.To.Port())
}

// Answer is what came. An error of a Prober instead says what was wrong with it.
type Answer struct {
	What  string        // "status 200"
	Delay time.Duration // from the question to the answer; 0: there is none to measure
}

// Prober asks one question, again and again.
type Prober interface {
	// Probe asks once, until ctx ends at the latest. An error says nothing about the endpoint if
	// ErrNotAsked or ErrUndecided is in it.
	Probe(ctx context.Context) (Answer, error)
}

// ErrNotAsked is in errors that kept a probe from being sent: what is missing is on this machine.
var ErrNotAsked = errors.New("cannot be asked")

// ErrUndecided is in errors that leave open how the endpoint is.
var ErrUndecided = errors.New("says nothing yet")

// New makes the prober of a question.
func New(q Question, shared *Sockets, files Files) Prober {
	switch q.Probe.Type {
	case lb.ProbePing:
		return ping{q, shared}
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

// Remember has a prober know what another has learnt, which asked the same address and port
// something else.
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
	return Answer{}, fmt.Errorf("%w: no probe of type %v", ErrNotAsked, u.kind)
}
