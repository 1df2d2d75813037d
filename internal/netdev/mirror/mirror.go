// Package mirror is a copy of what the kernel knows of the network of one namespace: links, addresses, connected
// networks, neighbours and default routes. It is read once and follows what the kernel tells; whoever runs it is told what
// changed.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/netdev/netlink"
)

const (
	// subscriptionBytes is the receive buffer for what changes: some 10,000 messages.
	subscriptionBytes = 8 << 20
	// resyncPause is how long to wait when everything could not be read again.
	resyncPause = time.Second
)

// Mirror is the copy. Its methods may be called from any goroutine; they read memory, and never ask the kernel.
type Mirror struct {
	log          *slog.Logger
	ns           *netlink.Namespace
	subscription *netlink.Subscription
	unsurveyed   chan struct{} // capacity 1: what is known of rules and routes is not all

	mu     sync.Mutex // of conn
	conn   *netlink.Conn
	tables *tables
}

// Open subscribes, then reads everything once: nothing is missed until Run.
func Open(ns *netlink.Namespace, log *slog.Logger) (*Mirror, error) {
	m := &Mirror{log: log, ns: ns, tables: newTables(), unsurveyed: make(chan struct{}, 1)}
	if err := m.open(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *Mirror) open() (err error) {
	if m.conn, err = m.ns.Dial(); err != nil {
		return err
	}
	m.subscription, err = m.ns.Subscribe(
		subscriptionBytes,
		unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_NEXTHOP,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
		unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
	)
	if err != nil {
		return err
	}
	_, err = m.resync()
	return err
}

// Close ends the subscription.
func (m *Mirror) Close() error { return errors.Join(m.subscription.Close(), m.conn.Close()) }

// Run follows the kernel until ctx ends, and calls on for what changes.
func (m *Mirror) Run(ctx context.Context, on func(Change)) error {
	ctx, cancel := context.WithCancel(ctx)
	var surveying sync.WaitGroup
	defer surveying.Wait()
	defer cancel()
	m.surveySoon()
	surveying.Go(func() { m.survey(ctx, on) })
	for {
		c, err := m.follow(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		if !c.Empty() {
			on(c)
		}
	}
}

// follow takes what comes next. After an overrun, and after a message that makes no sense, everything is read again.
func (m *Mirror) follow(ctx context.Context) (Change, error) {
	var c Change
	err := m.subscription.Receive(ctx, func(message netlink.Message) { c.Merge(m.tables.apply(message)) })
	if err != nil && !errors.Is(err, netlink.ErrOverrun) {
		return c, err
	}
	for err != nil {
		m.log.Warn("network is read again as a whole", "reason", err)
		var all Change
		if all, err = m.resync(); err == nil {
			c.Merge(all)
			m.surveySoon()
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

// resync reads every table again and says what differs from what was known.
func (m *Mirror) resync() (Change, error) {
	fresh := newTables()
	if err := m.readAll(fresh); err != nil {
		return Change{}, err
	}
	t := m.tables
	t.mu.Lock()
	defer t.mu.Unlock()
	c := Change{NextHops: true, Places: true, Loopback: true, Settings: true}
	c.Links = len(t.links) != len(fresh.links)
	for i, l := range fresh.links {
		c.Links = c.Links || !t.links[i].same(l)
	}
	for ip := range t.addresses {
		if len(fresh.addresses[ip]) != len(t.addresses[ip]) {
			c.Addresses = append(c.Addresses, ip)
		}
	}
	t.links, t.addresses, t.networks = fresh.links, fresh.addresses, fresh.networks
	t.neighbours, t.gone = fresh.neighbours, 0
	t.routing.lose()
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
