package netdev

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// settle is the least time between two events: what changes meanwhile is one event.
	settle = 5 * time.Millisecond
	// resyncPause is how long to wait when everything could not be read again.
	resyncPause = time.Second
	// afterGone is when next hops are told to have changed once more, as one may have been found by a route just before
	// that was taken away.
	afterGone = 30 * time.Millisecond
)

// Run follows the kernel until ctx ends: it calls on for what happens (never twice at a time, never within settle of
// the call before), keeps VIPs where they belong, next hops resolved and sysctls set.
func (n *Net) Run(ctx context.Context, on func(Event)) error {
	events, upkeep, surveys := newInbox(), newInbox(), newInbox()
	surveys.put(change{survey: true})
	upkeep.put(change{sysctls: true})
	var wg sync.WaitGroup
	defer wg.Wait()
	keeping, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { n.warmer.run(keeping) })
	wg.Go(func() { n.deliver(keeping, events, on) })
	wg.Go(func() { n.followXDP(keeping, events) })
	wg.Go(func() { n.keep(keeping, upkeep) })
	wg.Go(func() { n.survey(keeping, surveys, events) })
	wg.Go(func() { n.diagnose(keeping) })

	if err := n.watch.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("watch rtnetlink: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = n.watch.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, replyBytes)
	for {
		c, err := n.follow(ctx, buf)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		events.put(change{links: c.links, nextHops: c.nextHops, gone: c.gone, warm: c.warm})
		surveys.put(change{survey: c.survey})
		upkeep.put(change{addresses: c.addresses, places: c.places, loopback: c.loopback, sysctls: c.sysctls})
	}
}

// follow takes what comes next from the watch. After an overrun, and after a message that makes no sense, everything is
// read again.
func (n *Net) follow(ctx context.Context, buf []byte) (change, error) {
	got, err := n.watch.Read(buf)
	if err != nil && !errors.Is(err, unix.ENOBUFS) {
		return change{}, fmt.Errorf("watch rtnetlink: %w", err)
	}
	var c change
	if err == nil {
		err = splitReplies(buf[:got], func(r reply) error {
			c.merge(n.state.apply(r))
			return nil
		})
	}
	for err != nil {
		n.log.Warn("network is read again as a whole", "reason", err)
		var all change
		if all, err = n.resync(); err == nil {
			c.merge(all)
			break
		}
		select {
		case <-ctx.Done():
			return c, ctx.Err()
		case <-time.After(resyncPause):
		}
	}
	return c, nil
}

// deliver tells of what the watch found, apart from it, so that a slow listener never overruns the watch.
func (n *Net) deliver(ctx context.Context, in *inbox, on func(Event)) {
	for in.wait(ctx, settle) {
		c := in.take()
		if c.links || c.nextHops {
			on(Event{Links: c.links, NextHops: c.nextHops})
			n.warmer.wake()
		} else if c.warm {
			n.warmer.signal()
		}
		if c.gone {
			time.AfterFunc(afterGone, func() { in.put(change{nextHops: true}) })
		}
	}
}

// keep has VIPs and sysctls follow what the watch found. Many VIPs make that long: it takes a fifth of the time at most.
func (n *Net) keep(ctx context.Context, in *inbox) {
	pause := settle
	for in.wait(ctx, pause) {
		start := time.Now()
		c := in.take()
		if c.sysctls {
			n.keepForwarding()
		}
		if len(c.addresses) > 0 || c.places || c.loopback {
			n.vips.moved(ctx, c)
			n.lookAgain(ctx, in, c)
		}
		pause = max(settle, 4*time.Since(start))
	}
}

// lookAgain has VIPs that came out as somebody else's looked at again, three times within a second: the kernel tells that
// an address is gone a moment before it takes the local route away, and answers route requests meanwhile.
func (n *Net) lookAgain(ctx context.Context, in *inbox, c change) {
	others := n.vips.others(c.addresses)
	if len(others) == 0 || c.looks == 3 {
		return
	}
	time.AfterFunc(30*time.Millisecond<<(2*c.looks), func() {
		if ctx.Err() == nil {
			in.put(change{addresses: others, looks: c.looks + 1})
		}
	})
}

// inbox merges changes until somebody takes them.
type inbox struct {
	used    bool // wait was called, and is to pause
	mu      sync.Mutex
	pending change
	ready   chan struct{} // capacity 1: something is pending
}

func newInbox() *inbox { return &inbox{ready: make(chan struct{}, 1)} }

func (b *inbox) put(c change) {
	if c.empty() {
		return
	}
	b.mu.Lock()
	b.pending.merge(c)
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

func (b *inbox) take() change {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.pending
	b.pending = change{}
	return c
}

// wait pauses, but for the first time, and waits until something is pending; false: ctx ended.
func (b *inbox) wait(ctx context.Context, pause time.Duration) bool {
	if b.used {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
	b.used = true
	select {
	case <-ctx.Done():
		return false
	case <-b.ready:
		return true
	}
}
