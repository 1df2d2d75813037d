package objects

import (
	"encoding/binary"
	"errors"
	"fmt"

	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/netdev/netlink"
	"loxilb/internal/netobj"
)

// Routes is the kind of routes.
type Routes struct{ *Kernel }

// All are those of the main table. One with several ways is there once for each.
func (k Routes) All() (map[string][]netobj.Route, error) {
	out := map[string][]netobj.Route{}
	err := k.each(func(w *way) bool {
		out[w.Key()] = append(out[w.Key()], w.Route)
		return true
	})
	return out, err
}

// EachSeen yields all ways of all routes of the main table, in the kernel's order, as it reads them.
func (k Routes) EachSeen(yield func(*netobj.SeenRoute) bool) error {
	links, err := k.links()
	if err != nil {
		return err
	}
	return k.each(func(w *way) bool {
		if l := links[w.link]; l != nil {
			w.Dev = l.Attrs().Name
		}
		return yield(&w.SeenRoute)
	})
}

// each reads the main table by a socket of its own: the kernel leaves the others out, and waits with
// the rest while yield does. What changes meanwhile may be seen or not.
func (k Routes) each(yield func(*way) bool) error {
	conn, err := k.ns.Dial()
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // all was answered
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		more := true
		err := conn.Stream(unix.RTM_GETROUTE, netlink.TableHeader(family, unix.RT_TABLE_MAIN), func(m netlink.Message) bool {
			for _, w := range waysOf(m.Body) {
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

// Lookup asks for the route that packets to the network's first address take. It is known if that is
// the one: a smaller network, or one of a lower metric, hides it.
func (k Routes) Lookup(r netobj.Route) (have []netobj.Route, known bool) {
	list, err := k.match(r)
	if err != nil {
		return nil, unreachable(err) && r.Destination.Bits() > 0
	}
	for _, w := range list {
		switch {
		case w.Key() == r.Key():
			have = append(have, w.Route)
		case w.Destination == r.Destination, w.Destination.Bits() > r.Destination.Bits(), r.Destination.Bits() == 0:
			return nil, false
		}
	}
	return have, len(list) > 0
}

// Absent reports whether there is no route to the network: packets to its first address, at least,
// take another one.
func (k Routes) Absent(r netobj.Route) bool {
	have, known := k.Lookup(r)
	return known && len(have) == 0
}

// match returns the ways of the route in the main table that packets to the first address take.
func (k Routes) match(r netobj.Route) ([]way, error) {
	header := netlink.Header(netlink.Family(r.Destination.Addr()), unix.SizeofRtMsg)
	header[1] = byte(r.Destination.Addr().BitLen())
	binary.NativeEndian.PutUint32(header[8:], unix.RTM_F_FIB_MATCH)
	request := netlink.NewRequest(unix.RTM_GETROUTE, 0, header).Attr(unix.RTA_DST, r.Destination.Addr().AsSlice()).Answered()
	k.mu.Lock()
	defer k.mu.Unlock()
	answer, err := k.conn.One(request)
	if err != nil {
		return nil, err
	}
	return waysOf(answer), nil
}

func unreachable(err error) bool {
	return errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH)
}

// way is a route through one next hop.
type way struct {
	netobj.SeenRoute
	link int
}

// waysOf reads the message of a route. None: it is not of the main table, or a copy in a cache.
func waysOf(body []byte) []way {
	rt, hops, ok := netlink.ParseHops(body)
	if !ok || rt.Table != unix.RT_TABLE_MAIN {
		return nil
	}
	out := make([]way, len(hops))
	for i, hop := range hops {
		out[i] = way{link: hop.Link, SeenRoute: netobj.SeenRoute{Route: netobj.Route{
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
		return fmt.Errorf("gateway %s of route %s is in no network of an interface that is up: %w", r.Gateway, r.Destination, err)
	}
	return fmt.Errorf("the kernel refuses route %s via %s: %w", r.Destination, r.Gateway, err)
}

// Remove removes it: the one way of several, if it has several.
func (k Routes) Remove(r netobj.Route) error {
	metric := r.Metric
	if metric == 0 && r.Destination.Addr().Is6() {
		metric = netobj.UsualMetric6
	}
	route := &nl.Route{Dst: netOf(r.Destination), Gw: r.Gateway.AsSlice(), Protocol: nl.RouteProtocol(r.Protocol), Table: unix.RT_TABLE_MAIN, Priority: metric}
	if !r.Gateway.IsValid() {
		route.Gw, route.Scope = nil, nl.Scope(unix.RT_SCOPE_NOWHERE) // of any scope
	}
	if err := absent(k.nl.RouteDel(route), unix.ESRCH); err != nil {
		return fmt.Errorf("remove route %s: %w", r.Destination, err)
	}
	return nil
}
