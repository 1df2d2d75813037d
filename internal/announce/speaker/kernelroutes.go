package speaker

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/host/monotime"
	"loxilb/internal/kernel/netdev/netlink"
)

const (
	// learnedMetric is the metric of routes that the speaker adds to the kernel. Together with
	// protocol bgp it distinguishes them from another BGP speaker's routes, and they yield to
	// static routes.
	learnedMetric = 179
	// repairPause is the least time between two comparisons with the kernel; after one that took
	// long, the next one waits for repairRest times as long.
	repairPause = 500 * time.Millisecond
	repairRest  = 10
	// changesBuffer is the receive buffer for the kernel's changes, in bytes.
	changesBuffer = 1 << 20
	// writeSlice is the number of routes that are written while others wait, such as a change of
	// announced routes.
	writeSlice = 512
)

// kernelRoutes are the learned routes in the kernel's main table. Not safe for concurrent use.
type kernelRoutes struct {
	ns   *netlink.Namespace
	conn *netlink.Conn
}

// openKernel opens the kernel's routes in the network namespace of this thread.
func openKernel() (*kernelRoutes, error) {
	ns, err := netlink.OpenNamespace("")
	if err != nil {
		return nil, err
	}
	conn, err := ns.Dial()
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return &kernelRoutes{ns, conn}, nil
}

func (k *kernelRoutes) close() { _ = errors.Join(k.conn.Close(), k.ns.Close()) } // nothing is buffered

// routeEdit is a change of a route in the kernel.
type routeEdit struct {
	prefix netip.Prefix
	hop    nextHop
	remove bool
}

// write makes changes, many in one system call, and calls done for each. A neighbor may announce
// 50,000 routes at once.
func (k *kernelRoutes) write(edits []routeEdit, done func(i int, err error)) {
	links := map[string]int{}
	requests, of := make([]*netlink.Request, 0, len(edits)), make([]int, 0, len(edits))
	for i := range edits {
		r, err := edits[i].request(links)
		if err != nil {
			done(i, err)
			continue
		}
		requests, of = append(requests, r), append(of, i)
	}
	answered := 0
	err := k.conn.Batch(context.Background(), requests, func(n int, _ []byte, err error) {
		answered = n + 1
		e := &edits[of[n]]
		switch {
		case err == nil, e.remove && errors.Is(err, unix.ESRCH): // its link may have gone
			done(of[n], nil)
		case e.remove:
			done(of[n], fmt.Errorf("remove route: %w", err))
		default:
			done(of[n], fmt.Errorf("add route via %v: %w", e.hop.addr, err))
		}
	})
	for _, i := range of[answered:] {
		done(i, err)
	}
}

// request returns the message to the kernel. links has the numbers of interfaces so far.
func (e *routeEdit) request(links map[string]int) (*netlink.Request, error) {
	header := netlink.RouteHeader(netlink.Family(e.prefix.Addr()), unix.RTPROT_BGP)
	header[1], header[4] = byte(e.prefix.Bits()), unix.RT_TABLE_MAIN
	typ, flags := uint16(unix.RTM_NEWROUTE), uint16(unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	if e.remove {
		typ, flags, header[6] = unix.RTM_DELROUTE, 0, unix.RT_SCOPE_NOWHERE
	}
	r := netlink.NewRequest(typ, flags, header).Attr(unix.RTA_DST, e.prefix.Addr().AsSlice()).Attr32(unix.RTA_PRIORITY, learnedMetric)
	if e.remove {
		return r, nil
	}
	if link := e.hop.link; link != "" {
		if links[link] == 0 {
			i, err := net.InterfaceByName(link)
			if err != nil {
				return nil, fmt.Errorf("add route via %v: %w", e.hop.addr, err)
			}
			links[link] = i.Index
		}
		r.Attr32(unix.RTA_OIF, uint32(links[link]))
	}
	gateway := e.hop.addr.WithZone("")
	if e.prefix.Addr().Is4() && gateway.Is6() {
		return r.Attr(unix.RTA_VIA, append(binary.NativeEndian.AppendUint16(nil, unix.AF_INET6), gateway.AsSlice()...)), nil
	}
	return r.Attr(unix.RTA_GATEWAY, gateway.AsSlice()), nil
}

// read returns the prefixes of the learned routes that the kernel has.
func (k *kernelRoutes) read() (prefixes []netip.Prefix, err error) {
	for _, all := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		header := netlink.RouteHeader(netlink.Family(all), unix.RTPROT_BGP)
		err = errors.Join(err, k.conn.Dump(unix.RTM_GETROUTE, header, func(m netlink.Message) {
			if m.Type != unix.RTM_NEWROUTE || len(m.Body) < unix.SizeofRtMsg || m.Body[4] != unix.RT_TABLE_MAIN || m.Body[5] != unix.RTPROT_BGP {
				return
			}
			to, metric := all, uint32(0)
			netlink.Attributes(m.Body, unix.SizeofRtMsg, func(typ uint16, value []byte) {
				switch addr, ok := netip.AddrFromSlice(value); {
				case typ == unix.RTA_DST && ok:
					to = addr
				case typ == unix.RTA_PRIORITY:
					metric = netlink.Uint32(value)
				}
			})
			if metric == learnedMetric {
				prefixes = append(prefixes, netip.PrefixFrom(to, int(m.Body[1])))
			}
		}))
	}
	return prefixes, err
}

// RemoveLearnedRoutes removes the routes that an ended process has left in the kernel.
func RemoveLearnedRoutes() error {
	k, err := openKernel()
	if err != nil {
		return err
	}
	defer k.close()
	prefixes, err := k.read()
	edits := make([]routeEdit, len(prefixes))
	for i := range edits {
		edits[i] = routeEdit{prefix: prefixes[i], remove: true}
	}
	k.write(edits, func(_ int, failed error) { err = cmp.Or(err, failed) })
	return err
}

// watchKernel repairs the learned routes after changes of the kernel, until ctx ends: it drops them
// with an interface or its last address, and other programs may remove them. A next hop may also be
// reachable only now.
func (e *engine) watchKernel(ctx context.Context) {
	changed := make(chan struct{}, 1)
	e.tasks.Go(func() { e.repairRoutes(ctx, changed) })
	for ctx.Err() == nil {
		if err := e.learned.kernel.receiveChanges(ctx, changed); err != nil && ctx.Err() == nil {
			e.log.Warn("changes of the kernel's routes cannot be followed; trying again", "error", err)
		}
		monotime.Sleep(ctx, retryTime)
	}
}

func (e *engine) repairRoutes(ctx context.Context, changed <-chan struct{}) {
	pause, repaired := repairPause, true
	for {
		if repaired {
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
		}
		if !monotime.Sleep(ctx, pause) { // changes come in groups
			return
		}
		start := time.Now()
		repaired = e.learned.repair()
		pause = max(repairPause, repairRest*time.Since(start))
	}
}

// receiveChanges reports changes that may affect learned routes, until the subscription ends.
func (k *kernelRoutes) receiveChanges(ctx context.Context, changed chan<- struct{}) error {
	s, err := k.ns.Subscribe(changesBuffer, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	defer s.Close()
	for affected := true; ctx.Err() == nil; { // also by changes before the subscription
		if affected {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
		affected = false
		err := s.Receive(ctx, func(m netlink.Message) { affected = affected || affectsRoutes(m) })
		if errors.Is(err, netlink.ErrOverrun) { // more changes than the socket holds, such as a whole table
			affected, err = true, s.Drain()
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
	}
	return nil
}

// affectsRoutes reports whether the kernel may lack learned routes after a change, or take ones
// that it has refused.
func affectsRoutes(m netlink.Message) bool {
	const protocol = 5 // in struct rtmsg
	switch m.Type {
	case unix.RTM_NEWLINK, unix.RTM_NEWADDR:
		return true
	case unix.RTM_DELROUTE:
		return len(m.Body) > protocol && m.Body[protocol] == unix.RTPROT_BGP
	}
	return false
}
