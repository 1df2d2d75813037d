package objects

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/netobj"
)

// Routes is the kind of routes.
type Routes struct{ *Kernel }

// All are those of the main table. One with several ways is there once for each.
func (k Routes) All() (map[string][]netobj.Route, error) {
	list, err := k.list()
	if err != nil {
		return nil, err
	}
	out := map[string][]netobj.Route{}
	for i := range list {
		for _, r := range waysOf(&list[i]) {
			out[r.Key()] = append(out[r.Key()], r.Route)
		}
	}
	return out, nil
}

// Seen are all ways of all routes of the main table, in the kernel's order.
func (k Routes) Seen() ([]netobj.SeenRoute, error) {
	list, err := k.list()
	if err != nil {
		return nil, err
	}
	links, err := k.links()
	if err != nil {
		return nil, err
	}
	var out []netobj.SeenRoute
	for i := range list {
		for _, r := range waysOf(&list[i]) {
			if l := links[r.link]; l != nil {
				r.Dev = l.Attrs().Name
			}
			out = append(out, r.SeenRoute)
		}
	}
	return out, nil
}

func (k Routes) list() ([]nl.Route, error) {
	list, err := dump(func() ([]nl.Route, error) {
		return k.nl.RouteListFiltered(unix.AF_UNSPEC, &nl.Route{Table: unix.RT_TABLE_MAIN}, nl.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return list, nil
}

// Absent says that there is no route to the network: packets to its first address, at least, take another one.
func (k Routes) Absent(r netobj.Route) bool {
	if r.Destination.Bits() == 0 {
		return false // its first address stands for any, in a request
	}
	list, err := k.nl.RouteGetWithOptions(r.Destination.Addr().AsSlice(), &nl.RouteGetOptions{FIBMatch: true})
	if unreachable(err) {
		return true
	}
	for i := range list {
		for _, w := range waysOf(&list[i]) {
			if w.Destination == r.Destination || w.Destination.Bits() > r.Destination.Bits() {
				return false // a smaller network hides what else there is
			}
		}
	}
	return err == nil && len(list) > 0
}

func unreachable(err error) bool {
	return errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH)
}

// way is a route through one next hop.
type way struct {
	netobj.SeenRoute
	link int
}

func waysOf(r *nl.Route) []way {
	route := netobj.Route{Protocol: int(r.Protocol), Metric: r.Priority}
	switch {
	case r.Dst != nil:
		route.Destination = prefixOf(r.Dst)
	case r.Family == unix.AF_INET6:
		route.Destination = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	default:
		route.Destination = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	route.Metric = netobj.MetricOf(route.Destination, route.Metric)
	if len(r.MultiPath) == 0 {
		route.Gateway = gatewayOf(r.Gw, r.Via)
		return []way{{netobj.SeenRoute{Route: route}, r.LinkIndex}}
	}
	var out []way
	for _, hop := range r.MultiPath {
		route.Gateway = gatewayOf(hop.Gw, hop.Via)
		out = append(out, way{netobj.SeenRoute{Route: route}, hop.LinkIndex})
	}
	return out
}

func gatewayOf(gw net.IP, via nl.Destination) netip.Addr {
	if v, ok := via.(*nl.Via); ok && gw == nil {
		return addrOf(v.Addr)
	}
	return addrOf(gw)
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
