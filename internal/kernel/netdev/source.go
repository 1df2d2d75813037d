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

// waysAtOnce is how many ways are asked for before another caller has its turn: some 3 ms.
const waysAtOnce = 1024

// Way is what the routing table says of the way to a host.
type Way struct {
	Source     netip.Addr // that packets of this machine would have
	SourceBits uint8      // length of the network of Source, if the host or the router to it is in that; else 0
	RouteBits  uint8      // length of the route to the host; 0: the default route, or SourceBits says it
	Routed     bool       // a router is between, which is reached by its MAC address
}

// Sources finds the ways that packets of this machine take, and the source addresses that they have: it asks the kernel
// for routes.
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

// Ways asks the kernel which way packets to each of the hosts take. Their source is that of the longest route, or of the
// interface that it leads through. missing says of each other host why it has none: no route, an address of this machine
// itself, only a link-local address reaches it. err is the socket's or the context's: hosts in neither map were not asked.
// It costs about 3 us a host, and as much again for one behind a router. Who asks for few does not wait for who asks for many.
func (s *Sources) Ways(ctx context.Context, hosts []netip.Addr) (found map[netip.Addr]Way, missing map[netip.Addr]error, err error) {
	found, missing = make(map[netip.Addr]Way, len(hosts)), map[netip.Addr]error{}
	for part := range slices.Chunk(hosts, waysAtOnce) {
		if err := s.find(ctx, part, found, missing); err != nil {
			return found, missing, err
		}
	}
	return found, missing, nil
}

// Out is the interface by which packets of this machine leave for a host. False: there is no route, or the host is this machine itself.
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

// Routes are the routes by which packets of this machine leave for hosts, as the routing table has them. Hosts without one are left out.
func (s *Sources) Routes(ctx context.Context, hosts []netip.Addr) (map[netip.Addr]netobj.SeenRoute, error) {
	found := make(map[netip.Addr]netobj.SeenRoute, len(hosts))
	for part := range slices.Chunk(hosts, waysAtOnce) {
		s.mu.Lock()
		err := s.conn.Match(ctx, part, func(i int, rt netlink.Route, missing error) {
			if missing == nil && rt.Kind == unix.RTN_UNICAST {
				r := netobj.Route{Destination: rt.Dst, Gateway: rt.Gateway, Protocol: int(rt.Proto), Metric: netobj.MetricOf(rt.Dst, int(rt.Metric))}
				found[part[i]] = netobj.SeenRoute{Route: r, Dev: s.mirror.Link(rt.Link).Name}
			}
		})
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (s *Sources) find(ctx context.Context, hosts []netip.Addr, found map[netip.Addr]Way, missing map[netip.Addr]error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var routed []netip.Addr
	err := s.conn.LookUp(ctx, hosts, func(i int, rt netlink.Route, err error) {
		switch host := hosts[i]; {
		case err != nil:
			missing[host] = fmt.Errorf("look up the route to %s: %w", host, err)
		case rt.Kind == unix.RTN_LOCAL:
			missing[host] = fmt.Errorf("%s is an address of this machine", host)
		case rt.Kind != unix.RTN_UNICAST:
			missing[host] = fmt.Errorf("the route to %s is no route to a single host", host)
		case !rt.Source.IsGlobalUnicast():
			missing[host] = fmt.Errorf("this machine has no address towards %s that others can reach", host)
		default:
			way := s.way(host, rt)
			found[host] = way
			if rt.Gateway.IsValid() || way.SourceBits == 0 {
				routed = append(routed, host)
			}
		}
	})
	if err != nil {
		return err
	}
	return s.measure(ctx, routed, found)
}

// way is the way to a host, but for the length of the route.
func (s *Sources) way(host netip.Addr, rt netlink.Route) Way {
	neighbour := rt.Gateway
	if !neighbour.IsValid() {
		neighbour = host
	}
	return Way{
		Source: rt.Source, SourceBits: s.mirror.NetworkBits(rt.Source, rt.Link, neighbour),
		Routed: rt.Gateway.IsValid() && s.mirror.Link(rt.Link).Ethernet(),
	}
}

// measure finds out how long the routes to hosts are that are no neighbours.
func (s *Sources) measure(ctx context.Context, hosts []netip.Addr, ways map[netip.Addr]Way) error {
	return s.conn.Match(ctx, hosts, func(i int, rt netlink.Route, err error) {
		if err == nil {
			way := ways[hosts[i]]
			way.RouteBits = uint8(rt.Dst.Bits())
			ways[hosts[i]] = way
		}
	})
}
