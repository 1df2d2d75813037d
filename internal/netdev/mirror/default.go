package mirror

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"loxilb/internal/netdev/netlink"
)

// DefaultRoute is a next hop of a default route of the main table.
type DefaultRoute struct {
	Gateway netip.Addr // invalid: what leaves by the link takes that route
	Link    int        // index
}

// DefaultRoutes asks the kernel for the default routes. It reads the main table to find them.
func (m *Mirror) DefaultRoutes() ([]DefaultRoute, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []DefaultRoute
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		err := m.conn.Dump(unix.RTM_GETROUTE, netlink.RouteHeader(family, unix.RTPROT_UNSPEC), func(r netlink.Message) {
			rt, ok := netlink.ParseRoute(r.Body)
			if !ok || rt.Dst.Bits() != 0 || rt.Kind != unix.RTN_UNICAST || rt.Table != unix.RT_TABLE_MAIN {
				return
			}
			if rt.Link != 0 {
				out = append(out, DefaultRoute{Gateway: rt.Gateway, Link: rt.Link})
			}
			netlink.Attributes(r.Body, unix.SizeofRtMsg, func(typ uint16, v []byte) {
				if typ == unix.RTA_MULTIPATH {
					out = append(out, nextHops(v)...)
				}
			})
		})
		if err != nil {
			return nil, fmt.Errorf("read default routes: %w", err)
		}
	}
	return out, nil
}

// nextHops are those of a route that has several.
func nextHops(b []byte) (out []DefaultRoute) {
	for len(b) >= unix.SizeofRtNexthop {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtNexthop || size > len(b) {
			break
		}
		hop := DefaultRoute{Link: int(netlink.Uint32(b[4:]))}
		netlink.Attributes(b[:size], unix.SizeofRtNexthop, func(typ uint16, v []byte) {
			if typ == unix.RTA_GATEWAY {
				hop.Gateway, _ = netip.AddrFromSlice(v)
			}
		})
		out = append(out, hop)
		b = b[min(len(b), (size+3)&^3):]
	}
	return out
}

// AdvertisedLinks asks the kernel for the names of the links that have IPv6 routes by router advertisement.
func (m *Mirror) AdvertisedLinks() ([]string, error) {
	links := map[int]struct{}{}
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.conn.Dump(unix.RTM_GETROUTE, netlink.RouteHeader(unix.AF_INET6, unix.RTPROT_RA), func(r netlink.Message) {
		if rt, ok := netlink.ParseRoute(r.Body); ok && rt.Link != 0 {
			links[rt.Link] = struct{}{}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list routes by router advertisement: %w", err)
	}
	var names []string
	for i := range links {
		names = append(names, m.Link(i).Name)
	}
	return names, nil
}
