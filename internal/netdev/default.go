package netdev

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// DefaultRoute is a next hop of a default route of the main table.
type DefaultRoute struct {
	Gateway netip.Addr // invalid: what leaves by the link takes that route
	Link    int        // index
}

// DefaultRoutes asks the kernel for the default routes. It reads the main table to find them.
func (n *Net) DefaultRoutes() ([]DefaultRoute, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []DefaultRoute
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		err := n.route.dump(unix.RTM_GETROUTE, routeHeader(family, unix.RTPROT_UNSPEC), func(r reply) error {
			rt, ok := parseRoute(r.body)
			if !ok || rt.dst.Bits() != 0 || rt.kind != unix.RTN_UNICAST || rt.table != unix.RT_TABLE_MAIN {
				return nil
			}
			if rt.oif != 0 {
				out = append(out, DefaultRoute{Gateway: rt.gateway, Link: rt.oif})
			}
			attributes(r.body, unix.SizeofRtMsg, func(typ uint16, v []byte) {
				if typ == unix.RTA_MULTIPATH {
					out = append(out, nextHops(v)...)
				}
			})
			return nil
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
		hop := DefaultRoute{Link: int(u32(b[4:]))}
		attributes(b[:size], unix.SizeofRtNexthop, func(typ uint16, v []byte) {
			if typ == unix.RTA_GATEWAY {
				hop.Gateway, _ = netip.AddrFromSlice(v)
			}
		})
		out = append(out, hop)
		b = b[min(len(b), (size+3)&^3):]
	}
	return out
}
