package reconcile

import (
	"context"

	"loxilb/internal/control/desired"
	"loxilb/internal/lb"
)

// EndpointProbes probes addresses as users' objects define.
type EndpointProbes struct {
	*objectLoop[lb.EndpointProbe]
	health *Health
}

// NewEndpointProbes makes the loop of the objects.
func NewEndpointProbes(s *desired.State, h *Health, o Observers) *EndpointProbes {
	p := &EndpointProbes{health: h}
	p.objectLoop = newObjectLoop(desired.EndpointKind, p, s, s.Endpoints.Table, (*lb.EndpointProbe).Key, o)
	p.applied = h.probes.objects
	return p
}

// Apply starts, changes and stops the probes of these objects. It never fails.
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
	p.health.markServices(moved)
	return out
}
