package reconcile

import (
	"cmp"
	"context"

	"loxilb/internal/desired"
	"loxilb/internal/lb"
	"loxilb/internal/netdev"
)

// Policers keeps policers where they belong. One whose service or interface is not there waits for it, and is applied meanwhile: that is
// no failure.
type Policers struct {
	*objectLoop[lb.Policer]
	attached *attached
}

// NewPolicers makes the loop of the policers.
func NewPolicers(s *desired.State, table Attacher, links func() []netdev.Link, o Observers) *Policers {
	p := &Policers{attached: &attached{desired: s, table: table, links: links}}
	p.objectLoop = newObjectLoop(desired.PolicerKind, p, s, s.Policers.Table, func(p *lb.Policer) string { return p.Name }, o)
	p.applied = func() []string { return []string{leftover} }
	p.Loop.feed = p.feed
	p.Loop.name = func(key string) string { return cmp.Or(key, "all policers") }
	return p
}

// leftover is the key that has all be looked at: of what an earlier process has left, say. No policer has it for its name.
const leftover = ""

// feed marks also what a change of services concerns.
func (p *Policers) feed(ctx context.Context) {
	if _, changed, ok := p.desired.Since(p.seen); ok && p.started {
		for _, id := range changed {
			if id.Kind == desired.ServiceKind {
				p.Mark(leftover)
				break
			}
		}
	}
	p.objectLoop.feed(ctx)
}

// LinksChanged says that any interface may have changed.
func (p *Policers) LinksChanged() { p.Mark(leftover) }

// Places is how many services, prefixes or interfaces have a policer now.
func (p *Policers) Places(name string) int { return p.attached.count(name) }

// Apply makes all as it should be: that costs little if little has changed.
func (p *Policers) Apply(_ context.Context, keys []string) (out []Outcome[string]) {
	now := p.desired.Snapshot()
	failed, err := p.attached.apply(now)
	for _, key := range keys {
		meta, _ := p.desired.Policers.Meta(now, key)
		o := Outcome[string]{Key: key, Version: meta.Version, Err: err}
		if failed[key] != nil {
			o.Err = failed[key]
		}
		out = append(out, o)
	}
	return out
}
