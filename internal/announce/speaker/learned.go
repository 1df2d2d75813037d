package speaker

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	gobgp "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// learnedMetric is the metric of routes that the speaker adds to the kernel. Together with protocol
// bgp it distinguishes them from another BGP speaker's routes, and they yield to static routes.
const learnedMetric = 179

// learnedRoutes adds routes that neighbors announce to the kernel's main table.
type learnedRoutes struct {
	log *slog.Logger

	mu      sync.Mutex
	enabled bool
	closed  bool
	best    map[netip.Prefix]nextHop // of neighbors, whether enabled or not
	failed  map[netip.Prefix]bool    // the kernel does not have them
}

// nextHop is where a learned route leads.
type nextHop struct {
	addr netip.Addr
	link string // of a link-local address
}

func newLearned(log *slog.Logger) *learnedRoutes {
	return &learnedRoutes{log: log, best: map[netip.Prefix]nextHop{}, failed: map[netip.Prefix]bool{}}
}

// update adds and removes the routes whose best path has changed.
func (l *learnedRoutes) update(paths []*apiutil.Path) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	for _, p := range paths {
		prefix, hop, ok := learnedRoute(p)
		if !prefix.IsValid() {
			continue
		}
		if ok {
			l.add(prefix, hop)
		} else {
			l.remove(prefix)
		}
	}
}

// learnedRoute returns where a path leads; !ok: it is this node's own, or withdrawn.
func learnedRoute(p *apiutil.Path) (prefix netip.Prefix, hop nextHop, ok bool) {
	nlri, is := p.Nlri.(*gobgp.IPAddrPrefix)
	if !is {
		return prefix, hop, false
	}
	prefix = nlri.Prefix
	for _, a := range p.Attrs {
		switch a := a.(type) {
		case *gobgp.PathAttributeNextHop:
			hop.addr = a.Value
		case *gobgp.PathAttributeMpReachNLRI:
			hop.addr = a.Nexthop
			if hop.addr.IsUnspecified() && a.LinkLocalNexthop.IsValid() {
				hop.addr = a.LinkLocalNexthop
			}
		}
	}
	if hop.addr.IsLinkLocalUnicast() {
		hop.link = p.PeerAddress.Zone()
	}
	return prefix, hop, !p.Withdrawal && p.PeerAddress.IsValid() && hop.addr.IsValid()
}

func (l *learnedRoutes) add(prefix netip.Prefix, hop nextHop) {
	l.best[prefix] = hop
	if l.enabled {
		l.report(prefix, installRoute(prefix, hop))
	}
}

func (l *learnedRoutes) remove(prefix netip.Prefix) {
	if _, is := l.best[prefix]; !is {
		return
	}
	delete(l.best, prefix)
	delete(l.failed, prefix)
	if l.enabled {
		l.report(prefix, uninstallRoute(prefix))
	}
}

// report logs a route that the kernel does not take, once.
func (l *learnedRoutes) report(prefix netip.Prefix, err error) {
	if err != nil && !l.failed[prefix] {
		l.log.Warn("route of a BGP neighbor cannot be added to the kernel or removed", "prefix", prefix, "error", err)
	}
	if err != nil {
		l.failed[prefix] = true
	} else {
		delete(l.failed, prefix)
	}
}

// enable adds the learned routes to the kernel, or removes them.
func (l *learnedRoutes) enable(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if on == l.enabled {
		return
	}
	l.enabled = on
	for prefix, hop := range l.best {
		if on {
			l.report(prefix, installRoute(prefix, hop))
		} else {
			l.report(prefix, uninstallRoute(prefix))
		}
	}
}

// close ends all changes. The kernel keeps the routes while the daemon restarts.
func (l *learnedRoutes) close(keep bool) {
	if !keep {
		l.enable(false)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

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

// removeLeftovers removes learned routes that an earlier process has left in the kernel.
func removeLeftovers() (n int, err error) {
	filter := &netlink.Route{Protocol: unix.RTPROT_BGP, Table: unix.RT_TABLE_MAIN}
	var errs []error
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := netlink.RouteListFiltered(family, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
		errs = append(errs, err)
		for i := range routes {
			if routes[i].Priority != learnedMetric {
				continue
			}
			err := netlink.RouteDel(&routes[i])
			if err == nil {
				n++
			}
			errs = append(errs, err)
		}
	}
	return n, errors.Join(errs...)
}
