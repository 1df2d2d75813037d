package objects

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/netdev/netlink"
	"loxilb/internal/lb/netobj"
)

// Routes is the kind of routes.
type Routes struct{ *Kernel }

// All returns the routes of the main table. A multipath route appears once per path.
func (k Routes) All() (map[string][]netobj.Route, error) {
	out := map[string][]netobj.Route{}
	err := k.each(func(w *hopRoute) bool {
		out[w.Key()] = append(out[w.Key()], w.Route)
		return true
	})
	return out, err
}

// Subset is All for some keys. It keeps only their routes in memory.
func (k Routes) Subset(wanted []netobj.Route) (have map[string][]netobj.Route, seen int, err error) {
	have = map[string][]netobj.Route{}
	to := make(map[netip.Prefix]struct{}, len(wanted)) // cheaper to compare than keys, which are text
	for _, r := range wanted {
		have[r.Key()] = nil
		to[r.Destination] = struct{}{}
	}
	err = k.each(func(w *hopRoute) bool {
		seen++
		if _, maybe := to[w.Destination]; maybe {
			if list, is := have[w.Key()]; is {
				have[w.Key()] = append(list, w.Route)
			}
		}
		return true
	})
	return have, seen, err
}

// EachObserved yields all paths of all routes of the main table, in the kernel's order, as it reads
// them.
func (k Routes) EachObserved(yield func(*netobj.ObservedRoute) bool) error {
	links, err := k.links()
	if err != nil {
		return err
	}
	return k.each(func(w *hopRoute) bool {
		if l := links[w.link]; l != nil {
			w.Dev = l.Attrs().Name
		}
		return yield(&w.ObservedRoute)
	})
}

// each reads the main table over its own socket: the kernel omits other tables, and waits during
// yield. Concurrent changes may or may not be seen.
func (k Routes) each(yield func(*hopRoute) bool) error {
	conn, err := k.ns.Dial()
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // all was answered
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		more := true
		err := conn.Stream(unix.RTM_GETROUTE, netlink.TableHeader(family, unix.RT_TABLE_MAIN), func(m netlink.Message) bool {
			for _, w := range parseHopRoutes(m.Body) {
				more = more && yield(&w)
			}
			return more
		})
		if err != nil {
			return fmt.Errorf("list routes: %w", err)
		}
		if !more {
			return nil
		}
	}
	return nil
}

// Lookup looks up the routes of packets to some addresses of the network. The result is known if
// one of these is the route, or a route to a larger network. Otherwise smaller networks, or routes
// of a lower metric, may hide it.
func (k Routes) Lookup(r netobj.Route) (have []netobj.Route, known bool) {
	for _, a := range samplesOf(r.Destination) {
		if have, known = k.lookUpAt(r, a); known {
			return have, true
		}
	}
	return nil, false
}

// lookUpAt is Lookup by one address.
func (k Routes) lookUpAt(r netobj.Route, a netip.Addr) (have []netobj.Route, known bool) {
	list, err := k.match(a)
	if err != nil {
		return nil, errors.Is(err, unix.ENETUNREACH) // other errors are rejecting routes, perhaps to a smaller network
	}
	for _, w := range list {
		switch {
		case w.Key() == r.Key():
			have = append(have, w.Route)
		case w.Destination == r.Destination, w.Destination.Bits() > r.Destination.Bits():
			return nil, false
		}
	}
	return have, len(list) > 0
}

// samplesOf returns addresses of a network that smaller networks within rarely contain: its first
// and its last one. Ordinary subnets contain many others; addresses that are never assigned (RFC
// 1112, RFC 4291) are in few.
func samplesOf(to netip.Prefix) []netip.Addr {
	if to.Bits() == 0 {
		if to.Addr().Is4() {
			return []netip.Addr{netip.AddrFrom4([4]byte{240, 0, 0, 1}), netip.AddrFrom4([4]byte{255, 255, 255, 254})}
		}
		return []netip.Addr{netip.AddrFrom16([16]byte{0x40, 15: 1}), netip.AddrFrom16([16]byte{0xc0, 15: 1})}
	}
	last := to.Addr().AsSlice()
	for i := to.Bits(); i < 8*len(last); i++ {
		last[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(last)
	return []netip.Addr{to.Addr(), a}
}

// Absent reports whether there is no route to the network: packets to at least one of its addresses
// take another route.
func (k Routes) Absent(r netobj.Route) bool {
	have, known := k.Lookup(r)
	return known && len(have) == 0
}

// match returns the next hops of the main table's route for packets to an address.
func (k Routes) match(a netip.Addr) ([]hopRoute, error) {
	header := netlink.Header(netlink.Family(a), unix.SizeofRtMsg)
	header[1] = byte(a.BitLen())
	binary.NativeEndian.PutUint32(header[8:], unix.RTM_F_FIB_MATCH)
	request := netlink.NewRequest(unix.RTM_GETROUTE, 0, header).Attr(unix.RTA_DST, a.AsSlice()).Answered()
	k.mu.Lock()
	defer k.mu.Unlock()
	answer, err := k.conn.One(request)
	if err != nil {
		return nil, err
	}
	return parseHopRoutes(answer), nil
}

// hopRoute is a route through one next hop.
type hopRoute struct {
	netobj.ObservedRoute
	link int
}

// parseHopRoutes parses the message of a route. It returns nothing for another table or a cached
// copy.
func parseHopRoutes(body []byte) []hopRoute {
	rt, hops, ok := netlink.ParseHops(body)
	if !ok || rt.Table != unix.RT_TABLE_MAIN {
		return nil
	}
	out := make([]hopRoute, len(hops))
	for i, hop := range hops {
		out[i] = hopRoute{link: hop.Link, ObservedRoute: netobj.ObservedRoute{TOS: rt.TOS, Route: netobj.Route{
			Destination: rt.Dst, Gateway: hop.Gateway.Unmap(), Protocol: int(rt.Proto), Metric: netobj.MetricOf(rt.Dst, int(rt.Metric)),
		}}}
	}
	return out
}

// Make adds the route.
func (k Routes) Make(r netobj.Route) error {
	err := k.nl.RouteAdd(&nl.Route{
		Dst: netOf(r.Destination), Gw: r.Gateway.AsSlice(), Protocol: nl.RouteProtocol(r.Protocol), Table: unix.RT_TABLE_MAIN, Priority: r.Metric,
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return fmt.Errorf("gateway %s of route %s is not in the network of any interface that is up: %w", r.Gateway, r.Destination, err)
	}
	return fmt.Errorf("the kernel refuses route %s via %s: %w", r.Destination, r.Gateway, err)
}

// Remove removes the route, or one path of a multipath route.
func (k Routes) Remove(r netobj.Route) error {
	metric := r.Metric
	if metric == 0 && r.Destination.Addr().Is6() {
		metric = netobj.DefaultMetric6
	}
	route := &nl.Route{Dst: netOf(r.Destination), Gw: r.Gateway.AsSlice(), Protocol: nl.RouteProtocol(r.Protocol), Table: unix.RT_TABLE_MAIN, Priority: metric}
	if !r.Gateway.IsValid() {
		route.Gw, route.Scope = nil, nl.Scope(unix.RT_SCOPE_NOWHERE) // any scope
	}
	if err := absent(k.nl.RouteDel(route), unix.ESRCH); err != nil {
		return fmt.Errorf("remove route %s: %w", r.Destination, err)
	}
	return nil
}
