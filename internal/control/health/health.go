// Package health tracks which endpoints are up, by probes and by agents' reports (docs/health.md).
package health

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"loxilb/internal/control/health/probe"
	"loxilb/internal/lb"
)

// Target is a probed address.
type Target struct {
	Addr   netip.Addr
	Port   uint16
	Probe  lb.Probe
	Source netip.Addr // source address of probes; zero: the kernel's choice
	// In mode dsr, the destination of probes is the VIP, and they are encapsulated like packets
	// of clients.
	VIP    netip.Addr // zero: the destination is Addr
	Tunnel lb.Tunnel

	ProxyHeader bool // the endpoint expects the PROXY protocol
}

// State is the health of a target.
type State uint8

// The states.
const (
	Unknown State = iota // no probe has ended yet
	Up
	Down
)

func (s State) String() string {
	switch s {
	case Up:
		return "up"
	case Down:
		return "down"
	}
	return "unknown"
}

// Change is a change of a target's state.
type Change struct {
	At       time.Time
	From, To State
	Evidence string
}

// Status is the state of a target.
type Status struct {
	State      State
	Since      time.Time
	ProbeState State // the state by probes and Override, without Eject
	ProbeSince time.Time
	Evidence   string   // a sentence: the probe, its target, the result, and the counts
	History    []Change // the last changes, oldest first
	// How long the last successful probes waited for their answer; 0: no probe was successful,
	// or its type does not measure this.
	MinDelay, AvgDelay, MaxDelay time.Duration
	Failures, Successes          int           // consecutive ones; one of them is 0
	First, Last                  time.Time     // when the first and the last of these probes began
	Fall                         int           // consecutive failures that make the target down
	Interval                     time.Duration // between two probes
	Overridden                   bool          // ProbeState is set by Override
	Unconfirmed                  bool          // the target was never up, and fewer than Fall consecutive probes have failed
	Undecided                    bool          // the last probe ended without evidence
	Checked                      time.Time     // when the last probe ended
	Downs                        uint64        // how often State has become Down
	WasDown                      time.Duration // total time in State Down before Since
	Failed                       uint64        // total number of failed probes
}

// Downtime is the total time in State Down, until a time.
func (s *Status) Downtime(now time.Time) time.Duration {
	if s.State == Down {
		return s.WasDown + max(0, now.Sub(s.Since))
	}
	return s.WasDown
}

// withDefaults returns the target with defaults in place of zero values, and with the probe's port.
func (t Target) withDefaults() Target {
	t.Addr, t.Source = t.Addr.Unmap(), t.Source.Unmap()
	p := &t.Probe
	if p.Port != 0 {
		t.Port = p.Port
	}
	p.Port = 0
	p.Interval = cmp.Or(p.Interval, lb.DefaultProbeInterval)
	p.Timeout = cmp.Or(p.Timeout, min(p.Interval, lb.DefaultProbeTimeout))
	p.Fall = cmp.Or(p.Fall, lb.DefaultProbeFall)
	p.Rise = cmp.Or(p.Rise, lb.DefaultProbeRise)
	p.Statuses = slices.Clone(p.Statuses)
	return t
}

// sameEndpoint reports whether the state of one target also applies to the other.
func (t Target) sameEndpoint(u Target) bool {
	return t.Addr == u.Addr && t.Port == u.Port && t.Probe.Type == u.Probe.Type && t.VIP == u.VIP
}

// sameProbe reports whether a probe of one target has the same result as a probe of the other.
func (t Target) sameProbe(u Target) bool {
	for _, x := range []*Target{&t, &u} {
		x.Probe.Interval, x.Probe.Fall, x.Probe.Rise = 0, 0, 0
	}
	return reflect.DeepEqual(t, u)
}

func (t Target) spec() probe.Spec {
	return probe.Spec{To: t.probeAddr(), From: t.Source, ProxyHeader: t.ProxyHeader, Probe: t.Probe}
}

// probeAddr returns the destination of probes: the VIP, or the endpoint's own address.
func (t Target) probeAddr() netip.AddrPort {
	if t.VIP.IsValid() {
		return netip.AddrPortFrom(t.VIP, t.Port)
	}
	return netip.AddrPortFrom(t.Addr, t.Port)
}

// subject returns the beginning of the evidence: the type of the probe, and its target.
func (t Target) subject() string {
	at := ""
	if t.VIP.IsValid() {
		at = " at " + t.Addr.String()
	}
	switch t.Probe.Type {
	case lb.ProbePing:
		return "ping " + t.probeAddr().Addr().String() + at
	case lb.ProbeNone:
		return t.Addr.String()
	}
	return t.Probe.Type.String() + " " + t.probeAddr().String() + at
}
