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
	Source netip.Addr // an address of this machine that probes leave from; zero: the kernel's choice
	// In mode dsr, probes go to the VIP at the endpoint, in the outer header that packets of
	// clients get.
	VIP    netip.Addr // zero: to Addr
	Tunnel lb.Tunnel

	ProxyHeader bool // the endpoint expects the PROXY protocol
}

// State is whether a target is up.
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

// Change is a state that became another.
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
	History    []Change // the last ones, oldest first
	// How long the last successful probes waited for their answer; 0: no probe was successful,
	// or its type does not measure this.
	MinDelay, AvgDelay, MaxDelay time.Duration
	Failures, Successes          int           // in a row
	First, Last                  time.Time     // when the first and the last of these probes began
	Fall                         int           // failures in a row that make it down
	Interval                     time.Duration // between two probes
	Overridden                   bool          // ProbeState is set by Override
	Unconfirmed                  bool          // it was never up, and fewer than Fall probes in a row have failed
	Undecided                    bool          // the last probe has ended without an answer to its question
	Checked                      time.Time     // when the last probe ended
	Downs                        uint64        // how often State has become Down
	WasDown                      time.Duration // for how long, before Since
	Failed                       uint64        // probes that have failed in all
}

// Downtime is the total time in State Down, until a time.
func (s *Status) Downtime(now time.Time) time.Duration {
	if s.State == Down {
		return s.WasDown + max(0, now.Sub(s.Since))
	}
	return s.WasDown
}

// resolved returns the target without members that others replace.
func (t Target) resolved() Target {
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

// sameSubject reports whether one target's state applies to the other.
func (t Target) sameSubject(u Target) bool {
	return t.Addr == u.Addr && t.Port == u.Port && t.Probe.Type == u.Probe.Type && t.VIP == u.VIP
}

// sameQuestion reports whether one target's probe also answers the other's.
func (t Target) sameQuestion(u Target) bool {
	for _, x := range []*Target{&t, &u} {
		x.Probe.Interval, x.Probe.Fall, x.Probe.Rise = 0, 0, 0
	}
	return reflect.DeepEqual(t, u)
}

func (t Target) question() probe.Question {
	return probe.Question{To: t.probeAddr(), From: t.Source, ProxyHeader: t.ProxyHeader, Probe: t.Probe}
}

// probeAddr returns the destination of probes: the VIP, or the endpoint's own address.
func (t Target) probeAddr() netip.AddrPort {
	if t.VIP.IsValid() {
		return netip.AddrPortFrom(t.VIP, t.Port)
	}
	return netip.AddrPortFrom(t.Addr, t.Port)
}

// subject returns the beginning of the evidence: probe and target.
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
