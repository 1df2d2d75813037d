// Package mirror is a copy of the kernel's view of the network of one namespace: links, addresses,
// connected networks, neighbours and default routes. It reads all of it once, then follows the
// kernel's messages, and reports each change.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/host/monotime"
	"loxilb/internal/host/retry"
	"loxilb/internal/kernel/netdev/netlink"
)

const (
	// subscriptionBytes is the receive buffer for changes: some 10,000 messages.
	subscriptionBytes = 8 << 20
	// batchDelay is how long Run waits after it has received all messages, so more accumulate: five
	// messages at once cost less than five wake-ups.
	batchDelay = 5 * time.Millisecond
	// resyncShare bounds the share of time for reading everything.
	resyncShare = 4
)

// Mirror is the copy. Its methods may be called from any goroutine; they only read memory, except
// for AdvertisedLinks.
type Mirror struct {
	log          *slog.Logger
	ns           *netlink.Namespace
	subscription *netlink.Subscription
	bufferBytes  int // of subscription
	loop         *retry.Loop
	notBefore    time.Time     // earliest time to read everything again
	unsurveyed   chan struct{} // capacity 1: rules and routes must be read again

	mu     sync.Mutex // of conn
	conn   *netlink.Conn
	tables *tables
}

// Open subscribes, then reads everything once: nothing is missed until Run.
func Open(ns *netlink.Namespace, log *slog.Logger) (*Mirror, error) {
	return open(ns, log, subscriptionBytes)
}

func open(ns *netlink.Namespace, log *slog.Logger, bufferBytes int) (*Mirror, error) {
	m := &Mirror{log: log, ns: ns, bufferBytes: bufferBytes, tables: newTables(), loop: retry.New("the network is followed", log), unsurveyed: make(chan struct{}, 1)}
	if err := m.open(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *Mirror) open() (err error) {
	if m.conn, err = m.ns.Dial(); err != nil {
		return err
	}
	if err = m.subscribe(); err != nil {
		return err
	}
	_, err = m.resync()
	return err
}

// subscribe subscribes to changes.
func (m *Mirror) subscribe() error {
	fresh, err := m.ns.Subscribe(
		m.bufferBytes,
		unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_NEXTHOP,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
		unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
	)
	if err != nil {
		return err
	}
	err = m.subscription.Close()
	m.subscription = fresh
	return err
}

// Close ends the subscription.
func (m *Mirror) Close() error { return errors.Join(m.subscription.Close(), m.conn.Close()) }

// Run follows the kernel until ctx ends. It calls on for each change, from two goroutines. After a
// failure it opens the subscription and reads everything again, as often as needed.
func (m *Mirror) Run(ctx context.Context, on func(Change)) {
	var surveying sync.WaitGroup
	defer surveying.Wait()
	m.surveySoon()
	surveying.Go(func() { m.survey(ctx, on) })
	for ctx.Err() == nil {
		var c Change
		messages := 0
		err := m.subscription.Receive(ctx, func(message netlink.Message) {
			c.Merge(m.tables.apply(message))
			messages++
		})
		if err != nil {
			c.Merge(m.recover(ctx, err))
		}
		if !m.Surveyed() {
			m.surveySoon()
		}
		if !c.Empty() {
			on(c)
		}
		if messages < netlink.ReceiveBatch {
			monotime.Sleep(ctx, batchDelay)
		}
	}
}

// LastError returns what currently prevents the mirror from following the kernel, and since when;
// nil: nothing.
func (m *Mirror) LastError() (since time.Time, err error) { return m.loop.LastError() }

// recover continues after an overrun or a failure: it reads everything again, and opens the
// subscription again if it failed.
func (m *Mirror) recover(ctx context.Context, err error) (c Change) {
	for ctx.Err() == nil {
		// Under a storm that overruns every time, a fifth of the time goes into reading
		// everything.
		if !monotime.Sleep(ctx, time.Until(m.notBefore)) {
			break
		}
		m.log.Warn("reading the whole network state again", "reason", err)
		start := time.Now()
		if errors.Is(err, netlink.ErrOverrun) {
			err = m.subscription.Drain()
		} else {
			err = m.subscribe()
		}
		if err == nil {
			c, err = m.resync()
		}
		m.notBefore = time.Now().Add(resyncShare * time.Since(start))
		if err == nil {
			m.loop.Worked()
			break
		}
		if !monotime.Sleep(ctx, m.loop.Failed(err)) {
			break
		}
	}
	return c
}

// resync reads every table again and returns the differences. Messages that arrive meanwhile wait
// in the subscription: they are applied afterwards, in order, so each object ends in the state
// of its last message.
func (m *Mirror) resync() (Change, error) {
	fresh := newTables()
	if err := m.readAll(fresh); err != nil {
		return Change{}, err
	}
	t := m.tables
	t.mu.Lock()
	defer t.mu.Unlock()
	c := Change{NextHops: true, Places: true, Loopback: true, Settings: true}
	c.Events = append(t.adoptLinks(fresh), t.compareAddresses(fresh)...)
	for ip := range t.addresses {
		if len(fresh.addresses[ip]) != len(t.addresses[ip]) {
			c.Addresses = append(c.Addresses, ip)
		}
	}
	t.addresses, t.networks = fresh.addresses, fresh.networks
	t.adoptNeighbours(fresh)
	t.routing.markLost()
	return c, nil
}

func (m *Mirror) readAll(into *tables) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dumps := []struct {
		what   string
		typ    uint16
		header []byte
	}{
		{"links", unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg)},
		{"addresses", unix.RTM_GETADDR, make([]byte, unix.SizeofIfAddrmsg)},
		{"IPv4 neighbours", unix.RTM_GETNEIGH, netlink.Header(unix.AF_INET, unix.SizeofNdMsg)},
		{"IPv6 neighbours", unix.RTM_GETNEIGH, netlink.Header(unix.AF_INET6, unix.SizeofNdMsg)},
		{"IPv4 routes", unix.RTM_GETROUTE, netlink.RouteHeader(unix.AF_INET, unix.RTPROT_KERNEL)},
		{"IPv6 routes", unix.RTM_GETROUTE, netlink.RouteHeader(unix.AF_INET6, unix.RTPROT_KERNEL)},
		{"IPv6 routes by advertisement", unix.RTM_GETROUTE, netlink.RouteHeader(unix.AF_INET6, unix.RTPROT_RA)},
	}
	for _, d := range dumps {
		err := m.conn.Dump(d.typ, d.header, func(message netlink.Message) { into.apply(message) })
		if err != nil {
			return fmt.Errorf("list %s: %w", d.what, err)
		}
	}
	return nil
}

// AdvertisedLinks queries the kernel for the names of the links that have IPv6 routes by router
// advertisement.
func (m *Mirror) AdvertisedLinks() ([]string, error) {
	links := map[int]struct{}{}
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.conn.Dump(unix.RTM_GETROUTE, netlink.RouteHeader(unix.AF_INET6, unix.RTPROT_RA), func(r netlink.Message) {
		if rt, ok := netlink.ParseRoute(r.Body); ok && rt.Link != 0 {
			links[rt.Link] = struct{}{}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list routes by router advertisement: %w", err)
	}
	var names []string
	for i := range links {
		names = append(names, m.Link(i).Name)
	}
	return names, nil
}
