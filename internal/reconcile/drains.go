package reconcile

import (
	"context"

	"loxilb/internal/desired"
	"loxilb/internal/lb"
)

// Drains follows endpoints that are drained. That they take no new connections, and when those end that they have, is the services'
// part.
type Drains struct {
	*objectLoop[lb.Drain]
}

// NewDrains makes the loop of the objects.
func NewDrains(s *desired.State, o Observers) *Drains {
	d := &Drains{}
	d.objectLoop = newObjectLoop(desired.DrainKind, d, s, s.Drains.Table, (*lb.Drain).Key, o)
	return d
}

// Apply has nothing to do but to say so.
func (d *Drains) Apply(_ context.Context, keys []string) (out []Outcome[string]) {
	now := d.desired.Snapshot()
	for _, key := range keys {
		meta, _ := d.desired.Drains.Meta(now, key)
		out = append(out, Outcome[string]{Key: key, Version: meta.Version})
	}
	return out
}
