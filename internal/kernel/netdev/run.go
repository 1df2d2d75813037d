package netdev

import (
	"context"
	"sync"
	"time"

	"loxilb/internal/event"
	"loxilb/internal/kernel/netdev/mirror"
)

const (
	// settle is the least time between two events of routes: changes in between are one event.
	// While changes follow each other within settleMax it grows to settleMax, since after each
	// event every connection looks its next hop up again. The last change always causes an event.
	settle    = 5 * time.Millisecond
	settleMax = 200 * time.Millisecond
	// afterGone is the delay of a second event after the removal of a route or an address: a next
	// hop may have been looked up just before the kernel really removed the route.
	afterGone = 30 * time.Millisecond
)

// Run follows the kernel until ctx ends, and never gives up: it keeps VIPs where they belong, next
// hops resolved and settings set, and publishes
//
//   - event.Link for each link that was added, removed or renamed, changed in another field of
//     Link, or supports XDP differently now;
//   - event.Address for each added or removed address, except VIPs that VIPs owns;
//   - event.Neighbour when one answers with another MAC address, stops answering, or answers again;
//   - event.Object for each problem that appears (Failed) or is gone (Solved);
//   - event.Routes when a next hop may have changed: a route, a rule, an address or a link changed,
//     or a neighbour answers with another MAC address. There are at most five a second in a storm.
//
// The methods return the new state before an event is published.
func (n *Net) Run(ctx context.Context, hub *event.Hub) {
	routes, upkeep := mirror.NewInbox(), mirror.NewInbox()
	upkeep.Put(mirror.Change{Settings: true})
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { n.neighbours.Run(ctx) })
	wg.Go(func() { n.publishRoutes(ctx, routes, hub) })
	wg.Go(func() { n.followXDP(ctx, hub) })
	wg.Go(func() { n.maintain(ctx, upkeep) })
	wg.Go(func() { n.doctor.Run(ctx, func(p Problem, gone bool) { hub.Publish(problemEvent(p, gone)) }) })
	n.mirror.Run(ctx, func(c mirror.Change) {
		for _, e := range c.Events {
			hub.Publish(e)
		}
		routes.Put(mirror.Change{NextHops: c.NextHops, MACs: c.MACs, Messages: c.Messages, Defaults: c.Defaults, Gone: c.Gone, Unmanaged: c.Unmanaged})
		upkeep.Put(mirror.Change{Addresses: c.Addresses, Places: c.Places, Loopback: c.Loopback, Settings: c.Settings})
	})
}

func problemEvent(p Problem, gone bool) event.Object {
	if gone {
		return event.Object{ObjectKind: p.Kind, Key: p.Key, Action: event.Solved, Error: p.What}
	}
	return event.Object{ObjectKind: p.Kind, Key: p.Key, Action: event.Failed, Error: p.Error()}
}

// LastError returns what currently prevents the network from being followed, and since when; nil:
// nothing. The known state stays unchanged.
func (n *Net) LastError() (since time.Time, err error) { return n.mirror.LastError() }

func (n *Net) publishRoutes(ctx context.Context, in *mirror.Inbox, hub *event.Hub) {
	pause, rested := settle, time.Now()
	for in.Wait(ctx) {
		if time.Since(rested) > settleMax {
			pause = settle
		} else {
			pause = min(2*pause, settleMax)
		}
		c := in.Take()
		if c.NextHops || c.MACs || c.Defaults {
			hub.Publish(event.Routes{Count: c.Messages, Defaults: c.Defaults, Neighbours: !c.NextHops && !c.Defaults})
			n.neighbours.Invalidate()
		} else if c.Unmanaged {
			n.neighbours.Check()
		}
		if c.Gone {
			time.AfterFunc(afterGone, func() { in.Put(mirror.Change{NextHops: true, Messages: 1}) })
		}
		if !in.Pause(ctx, pause) {
			return
		}
		rested = time.Now()
	}
}

// maintain updates VIPs and settings after changes of the network. With many VIPs that takes long,
// so it pauses: it works at most a fifth of the time.
func (n *Net) maintain(ctx context.Context, in *mirror.Inbox) {
	for in.Wait(ctx) {
		start := time.Now()
		c := in.Take()
		if c.Settings {
			n.forward()
		}
		n.vips.Follow(ctx, c)
		if !in.Pause(ctx, max(settle, 4*time.Since(start))) {
			return
		}
	}
}
