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

// Spec is a probe and its target. All members of Probe are set: the caller has replaced zero values
// by the defaults.
type Spec struct {
	To   netip.AddrPort
	From netip.Addr // source address; zero: the kernel's choice
	// In mode dsr, To is a VIP. The socket is connected to Endpoint, the endpoint's own
	// address, so the kernel routes its packets there; Redirect sets their destination address
	// to the VIP. In other modes, Redirect is nil, and To is the endpoint.
	Endpoint    netip.Addr
	Redirect    func(fd int) error
	ProxyHeader bool // send a PROXY protocol header first on TCP connections that carry data
	Probe       lb.Probe
}

// target returns the address that a socket is connected to.
func (spec Spec) target() netip.AddrPort {
	if spec.Redirect == nil {
		return spec.To
	}
	return netip.AddrPortFrom(spec.Endpoint, spec.To.Port())
}

// Answer is a successful result. A Prober returns an error for any other result.
type Answer struct {
	What  string        // describes the answer, such as "status 200"
	Delay time.Duration // from the request to the answer; 0: not measured
}

// Prober performs the same probe repeatedly.
type Prober interface {
	// Probe probes once, and returns when ctx ends at the latest. An error is no evidence
	// about the endpoint if it wraps ErrNotSent or ErrUndecided.
	Probe(ctx context.Context) (Answer, error)
}

// ErrNotSent is wrapped by errors of this machine that prevent a probe.
var ErrNotSent = errors.New("cannot be probed")

// ErrUndecided is wrapped by errors of probes that ended without evidence about the endpoint.
var ErrUndecided = errors.New("is inconclusive")

// New returns a prober of the type that the probe requests.
func New(spec Spec, shared *Sockets, files Files) Prober {
	switch spec.Probe.Type {
	case lb.ProbePing:
		return pingProber{spec, shared}
	case lb.ProbeSCTP:
		return sctpProber{spec, shared}
	case lb.ProbeTCP:
		return tcpProber{spec}
	case lb.ProbeHTTP, lb.ProbeHTTPS:
		return newHTTP(spec, files)
	case lb.ProbeUDP:
		return newUDP(spec)
	case lb.ProbeGRPC:
		return newGRPC(spec, files)
	case lb.ProbeDNS:
		return dnsProber{spec}
	}
	return unknownType{spec.Probe.Type}
}

// TransferState copies what one prober has learned about an address and port to its successor. It
// has an effect only if both are UDP probers.
func TransferState(from, to Prober) {
	older, ok := from.(*udpProber)
	newer, both := to.(*udpProber)
	if ok && both {
		newer.refused = older.refused
	}
}

// unknownType is a prober for a probe type that this version does not support.
type unknownType struct{ kind lb.ProbeType }

func (u unknownType) Probe(context.Context) (Answer, error) {
	return Answer{}, fmt.Errorf("%w: no probe of type %v", ErrNotSent, u.kind)
}
