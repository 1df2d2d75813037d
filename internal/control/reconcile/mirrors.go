package reconcile

import (
	"context"

	"loxilb/internal/control/desired"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb/policy"
)

// Taps makes tunnels to collectors, and removes unused ones.
type Taps interface {
	MakeTap(netdev.Tap) error
	KeepTaps(wanted func(name string) bool) error
}

// Mirrors keeps mirrors attached, with the tunnels that they need: a removed tunnel is made again.
// A mirror whose service or interface is missing counts as applied, not failed, and is attached
// when it appears.
type Mirrors struct {
	attachedLoop[policy.Mirror]
	attached *Attached
	taps     Taps
}

// NewMirrors makes the loop of the mirrors.
func NewMirrors(s *desired.State, a *Attached, taps Taps, o Observers) *Mirrors {
	m := &Mirrors{attached: a, taps: taps}
	m.attachedLoop = newAttachedLoop(desired.MirrorKind, m, s, s.Mirrors.Table, func(m *policy.Mirror) string { return m.Name }, o)
	return m
}

// Apply applies all of them: that costs little if little has changed.
func (m *Mirrors) Apply(_ context.Context, keys []string) (out []Outcome[string]) {
	now := m.desired.Snapshot()
	wanted, tunnels := map[string]bool{}, map[string]error{}
	for one := range m.desired.Mirrors.All(now) {
		if one.Tunneled() {
			wanted[tapOf(&one).Name()] = true
			tunnels[one.Name] = m.taps.MakeTap(tapOf(&one))
		}
	}
	failed, err := m.attached.apply(now)
	if err == nil {
		err = m.taps.KeepTaps(func(name string) bool { return wanted[name] })
	}
	for _, key := range keys {
		meta, _ := m.desired.Mirrors.Meta(now, key)
		o := Outcome[string]{Key: key, Version: meta.Version, Err: err}
		for _, own := range []error{failed.Mirrors[key], tunnels[key]} {
			if own != nil {
				o.Err = own
			}
		}
		out = append(out, o)
	}
	return out
}
