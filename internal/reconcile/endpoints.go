package reconcile

import (
	"context"

	"loxilb/internal/desired"
	"loxilb/internal/lb"
	"loxilb/internal/status"
)

// EndpointProbes has addresses probed as users' objects say.
type EndpointProbes struct {
	*Loop[string]
	Observers
	desired *desired.State
	health  *Health
	seen    uint64 // revision up to which changes are marked
	started bool
}

// NewEndpointProbes makes the loop of the objects.
func NewEndpointProbes(s *desired.State, h *Health, o Observers) *EndpointProbes {
	p := &EndpointProbes{Observers: o, desired: s, health: h}
	p.Loop = newLoop(desired.EndpointKind, func(key string) string { return key }, p, o)
	p.Loop.watch, p.Loop.feed = s.Changed, p.feed
	return p
}

// feed marks what changed in the store since the last time.
func (p *EndpointProbes) feed(context.Context) {
	now, changed, ok := p.desired.Since(p.seen)
	if ok && p.started && len(changed) == 0 {
		return
	}
	p.Statuses.Update(func(w *status.Writer) {
		want := func(key string) {
			meta, _ := p.desired.Endpoints.Meta(now, key)
			w.Want(status.ID(p.desired.Endpoints.ID(key)), meta.Version) // version 0: it is gone
			p.MarkFirst(key)
		}
		if !ok || !p.started {
			for e := range p.desired.Endpoints.All(now) {
				want(e.Key())
			}
			for _, key := range p.health.probes.objects() {
				want(key)
			}
		} else {
			for _, id := range changed {
				if id.Kind == desired.EndpointKind {
					want(id.Key)
				}
			}
		}
		p.started, p.seen = true, now.Revision()
		w.Seen(desired.EndpointKind, p.seen)
	})
}

// Apply has the addresses of these objects probed as they say by now. It never fails.
func (p *EndpointProbes) Apply(_ context.Context, keys []string) (out []Outcome[string]) {
	now := p.desired.Snapshot()
	var moved []lb.Key
	for _, key := range keys {
		o := Outcome[string]{Key: key}
		if e, there := p.desired.Endpoints.Get(now, key); there {
			meta, _ := p.desired.Endpoints.Meta(now, key)
			o.Version = meta.Version
			moved = append(moved, p.health.probes.setObject(key, &e)...)
		} else {
			moved = append(moved, p.health.probes.setObject(key, nil)...)
		}
		out = append(out, o)
	}
	p.health.again(moved)
	return out
}
