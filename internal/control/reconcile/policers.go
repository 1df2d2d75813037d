package reconcile

import (
	"context"

	"loxilb/internal/control/desired"
	"loxilb/internal/lb/policy"
)

// Policers keeps policers attached. A policer whose service or interface is missing counts as
// applied, not failed, and is attached when it appears.
type Policers struct {
	attachedLoop[policy.Policer]
	attached *Attached
}

// NewPolicers makes the loop of the policers.
func NewPolicers(s *desired.State, a *Attached, o Observers) *Policers {
	p := &Policers{attached: a}
	p.attachedLoop = newAttachedLoop(desired.PolicerKind, p, s, s.Policers.Table, func(p *policy.Policer) string { return p.Name }, o)
	return p
}

// Apply applies all of them: that costs little if little has changed.
func (p *Policers) Apply(_ context.Context, keys []string) (out []Outcome[string]) {
	now := p.desired.Snapshot()
	failed, err := p.attached.apply(now)
	for _, key := range keys {
		meta, _ := p.desired.Policers.Meta(now, key)
		o := Outcome[string]{Key: key, Version: meta.Version, Err: err}
		if failed.Policers[key] != nil {
			o.Err = failed.Policers[key]
		}
		out = append(out, o)
	}
	return out
}
