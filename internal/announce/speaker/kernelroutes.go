package speaker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
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
	// dumpAttempts is the maximum number of reads of routes that change while they are read.
	dumpAttempts = 20
)

func installRoute(prefix netip.Prefix, hop nextHop) error {
	r := kernelRoute(prefix)
	if hop.link != "" {
		link, err := net.InterfaceByName(hop.link)
		if err != nil {
			return fmt.Errorf("add route via %v: %w", hop.addr, err)
		}
		r.LinkIndex = link.Index
	}
	gateway := hop.addr.WithZone("")
	if prefix.Addr().Is4() && gateway.Is6() {
		r.Via = &netlink.Via{AddrFamily: unix.AF_INET6, Addr: gateway.AsSlice()}
	} else {
		r.Gw = gateway.AsSlice()
	}
	if err := netlink.RouteReplace(r); err != nil {
		return fmt.Errorf("add route via %v: %w", hop.addr, err)
	}
	return nil
}

func uninstallRoute(prefix netip.Prefix) error {
	err := netlink.RouteDel(kernelRoute(prefix))
	if err != nil && !errors.Is(err, unix.ESRCH) { // its link may have gone
		return fmt.Errorf("remove route: %w", err)
	}
	return nil
}

func kernelRoute(prefix netip.Prefix) *netlink.Route {
	return &netlink.Route{
		Dst:      &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())},
		Protocol: unix.RTPROT_BGP,
		Priority: learnedMetric,
		Table:    unix.RT_TABLE_MAIN,
	}
}

// kernelRoutes returns the learned routes that the kernel has.
func kernelRoutes() (prefixes []netip.Prefix, err error) {
	filter := &netlink.Route{Protocol: unix.RTPROT_BGP, Table: unix.RT_TABLE_MAIN}
	var errs []error
	for family, all := range map[int]netip.Addr{unix.AF_INET: netip.IPv4Unspecified(), unix.AF_INET6: netip.IPv6Unspecified()} {
		routes, err := netlink.RouteListFiltered(family, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
		for i := 1; errors.Is(err, netlink.ErrDumpInterrupted) && i < dumpAttempts; i++ {
			routes, err = netlink.RouteListFiltered(family, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
		}
		errs = append(errs, err)
		for i := range routes {
			if routes[i].Priority != learnedMetric {
				continue
			}
			prefix := netip.PrefixFrom(all, 0)
			if to := routes[i].Dst; to != nil {
				addr, _ := netip.AddrFromSlice(to.IP) // of the family's length
				bits, _ := to.Mask.Size()
				prefix = netip.PrefixFrom(addr, bits)
			}
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes, errors.Join(errs...)
}

// RemoveLearnedRoutes removes the routes that an ended process has left in the kernel.
func RemoveLearnedRoutes() error {
	prefixes, err := kernelRoutes()
	for _, prefix := range prefixes {
		err = errors.Join(err, uninstallRoute(prefix))
	}
	return err
}

// watchKernel repairs the learned routes after changes of the kernel, until ctx ends: it drops them
// with an interface or its last address, and other programs may remove them. A next hop may also be
// reachable only now.
func (e *engine) watchKernel(ctx context.Context) {
	changed := make(chan struct{}, 1)
	e.tasks.Go(func() { e.repairRoutes(ctx, changed) })
	for ctx.Err() == nil {
		if err := receiveKernelChanges(ctx, changed); err != nil && ctx.Err() == nil {
			e.log.Warn("changes of the kernel's routes cannot be followed; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryTime):
		}
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
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause): // changes come in groups
		}
		start := time.Now()
		repaired = e.learned.repair()
		pause = max(repairPause, repairRest*time.Since(start))
	}
}

// receiveKernelChanges reports changes that may affect learned routes, until the subscription ends.
func receiveKernelChanges(ctx context.Context, changed chan<- struct{}) error {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	defer context.AfterFunc(ctx, s.Close)()
	defer s.Close()
	for affected := true; ; { // also by changes before the subscription
		if affected {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
		messages, _, err := s.Receive()
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		affected = false
		for _, m := range messages {
			const protocol = 5 // in struct rtmsg
			switch m.Header.Type {
			case unix.RTM_NEWLINK, unix.RTM_NEWADDR:
				affected = true
			case unix.RTM_DELROUTE:
				affected = affected || len(m.Data) > protocol && m.Data[protocol] == unix.RTPROT_BGP
			}
		}
	}
}
