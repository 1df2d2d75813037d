package vip

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/kernel/netdev/mirror"
)

// Follow moves VIPs to where they belong after a change of the network.
func (o *Owner) Follow(ctx context.Context, c mirror.Change) {
	if len(c.Addresses) == 0 && !c.Places && !c.Loopback {
		return
	}
	o.mu.Lock()
	o.follow(ctx, c)
	o.mu.Unlock()
	o.lookAgain(ctx, c.Addresses, 0)
}

func (o *Owner) follow(ctx context.Context, c mirror.Change) {
	look := make([]netip.Addr, 0, len(c.Addresses))
	if c.Places {
		look = slices.AppendSeq(look, maps.Keys(o.want))
	} else {
		for _, a := range c.Addresses {
			if _, ok := o.want[a]; ok {
				look = append(look, a)
			}
		}
	}
	var back []netip.Addr
	if c.Loopback {
		back = slices.Collect(maps.Keys(o.have))
	} else {
		back = slices.DeleteFunc(slices.Clone(c.Addresses), func(a netip.Addr) bool { return o.have[a] == nil })
	}
	if err := o.restore(ctx, back); err != nil && ctx.Err() == nil {
		for _, a := range back {
			if _, ok := o.want[a]; ok {
				o.failed[a] = err
			}
		}
	}
	o.settle(ctx, look)
}

// restore adds addresses again that others removed. Those that disappeared with their link are
// forgotten: settle determines where they belong now.
func (o *Owner) restore(ctx context.Context, vips []netip.Addr) error {
	var steps []step
	for _, a := range vips {
		for _, p := range slices.Clone(o.have[a]) {
			s := step{addr: a, place: p}
			if o.mirror.Link(p.link).Loopback() || o.mirror.Holds(a, p.link) {
				steps = append(steps, s)
			} else {
				o.forgetPlace(s)
			}
		}
	}
	return o.put(ctx, steps)
}

// lookAgain looks again, three times within a second, at VIPs that came out as somebody else's: the
// kernel tells that an address is gone a moment before it takes the local route away, and answers
// route requests meanwhile.
func (o *Owner) lookAgain(ctx context.Context, vips []netip.Addr, looks int) {
	others := o.notOurs(vips)
	if len(others) == 0 || looks == 3 {
		return
	}
	time.AfterFunc(30*time.Millisecond<<(2*looks), func() {
		if ctx.Err() != nil {
			return
		}
		o.mu.Lock()
		o.follow(ctx, mirror.Change{Addresses: others})
		o.mu.Unlock()
		o.lookAgain(ctx, others, looks+1)
	})
}

// notOurs returns the addresses that are VIPs but owned by someone else.
func (o *Owner) notOurs(list []netip.Addr) []netip.Addr {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []netip.Addr
	for _, a := range list {
		if _, wanted := o.want[a]; wanted && o.have[a] == nil {
			out = append(out, a)
		}
	}
	return out
}

// Retry retries failures, and work that depends on settings that the kernel does not report.
func (o *Owner) Retry(ctx context.Context) {
	now := o.ignores()
	o.mu.Lock()
	defer o.mu.Unlock()
	c := mirror.Change{
		Addresses: slices.Collect(maps.Keys(o.failed)),
		Places:    o.seen != nil && !maps.Equal(o.seen, now),
	}
	o.seen = now
	if !c.Empty() {
		o.follow(ctx, c)
	}
}

// ignores returns the arp_ignore of every link with a connected IPv4 network.
func (o *Owner) ignores() map[string]int {
	out := map[string]int{}
	for _, l := range o.mirror.IPv4Links() {
		out[l.Name] = o.settings.ARPIgnore(l.Name)
	}
	return out
}
