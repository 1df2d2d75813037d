package netdev

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/netdev/mirror"
	"loxilb/internal/kernel/netdev/netlink"
	"loxilb/internal/lb/netobj"
)

// pathsAtOnce is the number of paths looked up before another caller has its turn: some 3 ms.
const pathsAtOnce = 1024

// Path is the routing table's path to a host.
type Path struct {
	Source     netip.Addr // of this machine's packets to the host
	SourceBits uint8      // length of the network of Source, if the host or its router is in it; else 0
	RouteBits  uint8      // length of the route to the host; 0: the default route, or SourceBits determines it
	Routed     bool       // the path leads through a router, whose MAC address is used
	Returns    bool       // the host is a container of this machine: its answers to any client pass this machine
}

// Sources looks up the paths and source addresses of this machine's packets in the kernel's routing
// table.
type Sources struct {
	mirror *mirror.Mirror
	mu     sync.Mutex
	conn   *netlink.Conn
}

func openSources(ns *netlink.Namespace, m *mirror.Mirror) (*Sources, error) {
	conn, err := ns.Dial()
	if err != nil {
		return nil, err
	}
	return &Sources{mirror: m, conn: conn}, nil
}

func (s *Sources) close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn.Close()
}

// Paths looks up the path to each host. The source belongs to the longest route, or to its
// interface. missing explains why a host has no path: no route, an address of this machine itself,
// or only a link-local source. err is the socket's or the context's: hosts in neither map were not
// looked up. A host costs about 3 us; a host behind a router twice that. A small request does not
// wait for a large one.
func (s *Sources) Paths(ctx context.Context, hosts []netip.Addr) (found map[netip.Addr]Path, missing map[netip.Addr]error, err error) {
	found, missing = make(map[netip.Addr]Path, len(hosts)), map[netip.Addr]error{}
	for part := range slices.Chunk(hosts, pathsAtOnce) {
		if err := s.find(ctx, part, found, missing); err != nil {
			return found, missing, err
		}
	}
	return found, missing, nil
}

// Out returns the interface by which packets of this machine leave for a host. It returns false if
// there is no route, or the host is this machine.
func (s *Sources) Out(ctx context.Context, host netip.Addr) (out Link, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.conn.LookUp(ctx, []netip.Addr{host}, func(_ int, rt netlink.Route, missing error) {
		if ok = missing == nil && rt.Kind == unix.RTN_UNICAST; ok {
			out = s.mirror.Link(rt.Link)
		}
	})
	return out, ok, err
}

// Routes returns the routes to hosts as the routing table has them. Hosts without a route are left
// out.
func (s *Sources) Routes(ctx context.Context, hosts []netip.Addr) (map[netip.Addr]netobj.ObservedRoute, error) {
	found := make(map[netip.Addr]netobj.ObservedRoute, len(hosts))
	for part := range slices.Chunk(hosts, pathsAtOnce) {
		s.mu.Lock()
		err := s.conn.Match(ctx, part, func(i int, rt netlink.Route, missing error) {
			if missing == nil && rt.Kind == unix.RTN_UNICAST {
				r := netobj.Route{Destination: rt.Dst, Gateway: rt.Gateway, Protocol: int(rt.Proto), Metric: netobj.MetricOf(rt.Dst, int(rt.Metric))}
				found[part[i]] = netobj.ObservedRoute{Route: r, Dev: s.mirror.Link(rt.Link).Name}
			}
		})
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (s *Sources) find(ctx context.Context, hosts []netip.Addr, found map[netip.Addr]Path, missing map[netip.Addr]error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var routed []netip.Addr
	containers := s.mirror.Containers()
	err := s.conn.LookUp(ctx, hosts, func(i int, rt netlink.Route, err error) {
		switch host := hosts[i]; {
		case err != nil:
			missing[host] = fmt.Errorf("look up the route to %s: %w", host, err)
		case rt.Kind == unix.RTN_LOCAL:
			missing[host] = fmt.Errorf("%s is an address of this machine", host)
		case rt.Kind != unix.RTN_UNICAST:
			missing[host] = fmt.Errorf("the route to %s is not a route to a single host", host)
		case !rt.Source.IsGlobalUnicast():
			missing[host] = fmt.Errorf("this machine has no address towards %s that others can reach", host)
		default:
			path := s.path(host, rt)
			path.Returns = !rt.Gateway.IsValid() && containers.Bridge(rt.Link)
			found[host] = path
			if rt.Gateway.IsValid() || path.SourceBits == 0 {
				routed = append(routed, host)
			}
		}
	})
	if err != nil {
		return err
	}
	return s.measure(ctx, routed, found, containers)
}

// path returns the path to a host, except the length of the route.
func (s *Sources) path(host netip.Addr, rt netlink.Route) Path {
	neighbour := rt.Gateway
	if !neighbour.IsValid() {
		neighbour = host
	}
	return Path{
		Source: rt.Source, SourceBits: s.mirror.NetworkBits(rt.Source, rt.Link, neighbour),
		Routed: rt.Gateway.IsValid() && s.mirror.Link(rt.Link).Ethernet(),
	}
}

// measure looks up the route lengths of hosts that are not neighbours. A veth with a route to a
// single host leads to a container; other veths may lead to networks.
func (s *Sources) measure(ctx context.Context, hosts []netip.Addr, paths map[netip.Addr]Path, containers mirror.Containers) error {
	return s.conn.Match(ctx, hosts, func(i int, rt netlink.Route, err error) {
		if err == nil {
			path := paths[hosts[i]]
			path.RouteBits = uint8(rt.Dst.Bits())
			path.Returns = path.Returns || rt.Dst.IsSingleIP() && !rt.Gateway.IsValid() && containers.Veth(rt.Link)
			paths[hosts[i]] = path
		}
	})
}
