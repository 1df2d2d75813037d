package netdev

import (
	"context"
	"sync"
	"time"

	"loxilb/internal/netdev/mirror"
)

const (
	// settle is the least time between two events: what changes meanwhile is one event.
	settle = 5 * time.Millisecond
	// afterGone is when next hops are told to have changed once more, as one may have been found by a route just before
	// that was taken away.
	afterGone = 30 * time.Millisecond
)

// Event says what to look at again; several changes are one event.
type Event struct {
	// Links: a link came, went, was renamed, or changed a member that Link shows.
	Links bool
	// NextHops: a next hop that was found before may be another one now (route, rule, address or link changed; a
	// neighbour answers with another MAC). A neighbour that is merely confirmed, fails, or is resolved for the first
	// time is no such change.
	NextHops bool
}

// Run follows the kernel until ctx ends: it calls on for what happens (never twice at a time, never within settle of
// the call before), keeps VIPs where they belong, next hops resolved and settings set.
func (n *Net) Run(ctx context.Context, on func(Event)) error {
	events, upkeep := mirror.NewInbox(), mirror.NewInbox()
	upkeep.Put(mirror.Change{Settings: true})
	var wg sync.WaitGroup
	defer wg.Wait()
	keeping, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { n.neighbours.Run(keeping) })
	wg.Go(func() { n.deliver(keeping, events, on) })
	wg.Go(func() { n.followXDP(keeping, events) })
	wg.Go(func() { n.keep(keeping, upkeep) })
	wg.Go(func() { n.doctor.Run(keeping) })
	return n.mirror.Run(ctx, func(c mirror.Change) {
		events.Put(mirror.Change{Links: c.Links, NextHops: c.NextHops, Gone: c.Gone, Unmanaged: c.Unmanaged})
		upkeep.Put(mirror.Change{Addresses: c.Addresses, Places: c.Places, Loopback: c.Loopback, Settings: c.Settings})
	})
}

// deliver tells of what the mirror found, apart from it, so that a slow listener never keeps the mirror waiting.
func (n *Net) deliver(ctx context.Context, in *mirror.Inbox, on func(Event)) {
	for in.Wait(ctx, settle) {
		c := in.Take()
		if c.Links || c.NextHops {
			on(Event{Links: c.Links, NextHops: c.NextHops})
			n.neighbours.Invalidate()
		} else if c.Unmanaged {
			n.neighbours.Check()
		}
		if c.Gone {
			time.AfterFunc(afterGone, func() { in.Put(mirror.Change{NextHops: true}) })
		}
	}
}

// keep has VIPs and settings follow what the mirror found. Many VIPs make that long: it takes a fifth of the time at most.
func (n *Net) keep(ctx context.Context, in *mirror.Inbox) {
	pause := settle
	for in.Wait(ctx, pause) {
		start := time.Now()
		c := in.Take()
		if c.Settings {
			n.forward()
		}
		n.vips.Follow(ctx, c)
		pause = max(settle, 4*time.Since(start))
	}
}
