package netlink

import (
	"context"
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Route is the relevant part of a route.
type Route struct {
	Dst     netip.Prefix
	Kind    uint8 // RTN_*
	Proto   uint8 // RTPROT_*
	TOS     uint8 // of its packets; 0: any
	Table   uint32
	Metric  uint32
	Link    int // index of the outgoing interface; 0: none, or several next hops
	Gateway netip.Addr
	Source  netip.Addr // that packets of this machine itself would have
}

// ParseRoute parses the body of a route message. It returns false if it is not a unicast, local or
// rejecting route of an IP version.
func ParseRoute(body []byte) (rt Route, ok bool) {
	if len(body) < unix.SizeofRtMsg {
		return Route{}, false
	}
	rt = Route{Table: uint32(body[4]), Proto: body[5], TOS: body[3], Kind: body[7]}
	var dst netip.Addr
	switch body[0] {
	case unix.AF_INET:
		dst = netip.IPv4Unspecified()
	case unix.AF_INET6:
		dst = netip.IPv6Unspecified()
	default:
		return Route{}, false
	}
	Attributes(body, unix.SizeofRtMsg, func(typ uint16, v []byte) {
		switch typ {
		case unix.RTA_DST:
			dst, _ = netip.AddrFromSlice(v)
		case unix.RTA_OIF:
			rt.Link = int(Uint32(v))
		case unix.RTA_GATEWAY:
			rt.Gateway, _ = netip.AddrFromSlice(v)
		case unix.RTA_VIA:
			if len(v) > 2 {
				rt.Gateway, _ = netip.AddrFromSlice(v[2:])
			}
		case unix.RTA_PREFSRC:
			rt.Source, _ = netip.AddrFromSlice(v)
		case unix.RTA_TABLE:
			rt.Table = Uint32(v)
		case unix.RTA_PRIORITY:
			rt.Metric = Uint32(v)
		}
	})
	rt.Dst = netip.PrefixFrom(dst, int(body[1]))
	uninteresting := rt.Kind == unix.RTN_BROADCAST || rt.Kind == unix.RTN_MULTICAST || rt.Kind == unix.RTN_ANYCAST
	return rt, dst.IsValid() && !uninteresting
}

// RouteHeader limits a dump to the unicast routes of one origin, so a full Internet table
// stays in the kernel.
func RouteHeader(family, proto byte) []byte {
	h := Header(family, unix.SizeofRtMsg)
	h[5], h[7] = proto, unix.RTN_UNICAST
	return h
}

// TableHeader limits a dump to the routes of one table.
func TableHeader(family, table byte) []byte {
	h := Header(family, unix.SizeofRtMsg)
	h[4] = table
	return h
}

// NextHop is a next hop of a route.
type NextHop struct {
	Link    int
	Gateway netip.Addr
}

// ParseHops parses the body of a route message of any kind, with all its next hops. It returns
// false if it is not a route of an IP version, or a cached copy.
func ParseHops(body []byte) (rt Route, hops []NextHop, ok bool) {
	if len(body) < unix.SizeofRtMsg || binary.NativeEndian.Uint32(body[8:])&unix.RTM_F_CLONED != 0 {
		return Route{}, nil, false
	}
	rt, _ = ParseRoute(body)
	if !rt.Dst.IsValid() {
		return Route{}, nil, false
	}
	Attributes(body, unix.SizeofRtMsg, func(typ uint16, v []byte) {
		if typ == unix.RTA_MULTIPATH {
			hops = parseNextHops(v)
		}
	})
	if len(hops) == 0 {
		hops = []NextHop{{rt.Link, rt.Gateway}}
	}
	return rt, hops, true
}

func parseNextHops(b []byte) (out []NextHop) {
	for len(b) >= unix.SizeofRtNexthop {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtNexthop || size > len(b) {
			break
		}
		hop := NextHop{Link: int(Uint32(b[4:]))}
		Attributes(b[:size], unix.SizeofRtNexthop, func(typ uint16, v []byte) {
			if typ == unix.RTA_GATEWAY {
				hop.Gateway, _ = netip.AddrFromSlice(v)
			} else if typ == unix.RTA_VIA && len(v) > 2 {
				hop.Gateway, _ = netip.AddrFromSlice(v[2:])
			}
		})
		out = append(out, hop)
		b = b[min(len(b), (size+3)&^3):]
	}
	return out
}

// LookUp looks up the route of packets to each of the hosts, and calls each once for every host:
// with the route, or with the kernel's error (ENETUNREACH, EHOSTUNREACH, ...). The returned error
// is the socket's or the context's. A host costs 2 to 3 us.
func (c *Conn) LookUp(ctx context.Context, hosts []netip.Addr, each func(i int, rt Route, err error)) error {
	return c.lookUp(ctx, hosts, 0, each)
}

// Match is LookUp for entries of the routing table: Dst is the route's, and Source is set only if
// the route itself has one.
func (c *Conn) Match(ctx context.Context, hosts []netip.Addr, each func(i int, rt Route, err error)) error {
	return c.lookUp(ctx, hosts, unix.RTM_F_FIB_MATCH, each)
}

func (c *Conn) lookUp(ctx context.Context, hosts []netip.Addr, flags uint32, each func(i int, rt Route, err error)) error {
	requests := make([]*Request, len(hosts))
	for i, a := range hosts {
		header := Header(Family(a), unix.SizeofRtMsg)
		header[1] = byte(a.BitLen())
		binary.NativeEndian.PutUint32(header[8:], flags)
		requests[i] = NewRequest(unix.RTM_GETROUTE, 0, header).Attr(unix.RTA_DST, a.AsSlice())
		requests[i].isAnswered = true
	}
	return c.Batch(ctx, requests, func(i int, answer []byte, err error) {
		rt, ok := ParseRoute(answer)
		if err == nil && !ok {
			err = errNoHost
		}
		each(i, rt, err)
	})
}
