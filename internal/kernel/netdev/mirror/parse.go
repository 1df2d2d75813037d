package mirror

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/netdev/netlink"
)

func parseAddress(body []byte) (address, bool) {
	if len(body) < unix.SizeofIfAddrmsg {
		return address{}, false
	}
	a := address{link: int(binary.NativeEndian.Uint32(body[4:]))}
	var ip netip.Addr
	netlink.Attributes(body, unix.SizeofIfAddrmsg, func(typ uint16, v []byte) {
		switch typ {
		case unix.IFA_LOCAL:
			ip, _ = netip.AddrFromSlice(v)
		case unix.IFA_ADDRESS:
			if !ip.IsValid() { // IPv6 has no IFA_LOCAL without a peer; with one, LOCAL comes later and wins
				ip, _ = netip.AddrFromSlice(v)
			}
		case netlink.IFAProto:
			a.ours = len(v) > 0 && v[0] == netlink.OwnProtocol
		}
	})
	a.prefix = netip.PrefixFrom(ip, int(body[1]))
	return a, ip.IsValid()
}

func parseNeighbour(body []byte) (Hop, neighbour, bool) {
	if len(body) < unix.SizeofNdMsg || (body[0] != unix.AF_INET && body[0] != unix.AF_INET6) {
		return Hop{}, neighbour{}, false
	}
	key := Hop{Link: int(int32(binary.NativeEndian.Uint32(body[4:])))}
	n := neighbour{state: binary.NativeEndian.Uint16(body[8:])}
	proxy := body[10]&unix.NTF_PROXY != 0
	netlink.Attributes(body, unix.SizeofNdMsg, func(typ uint16, v []byte) {
		switch typ {
		case unix.NDA_DST:
			key.Via, _ = netip.AddrFromSlice(v)
		case unix.NDA_LLADDR:
			n.mac = string(bytes.Clone(v))
		case netlink.NDAProtocol:
			n.ours = len(v) > 0 && v[0] == netlink.OwnProtocol
		case netlink.NDAFlagsExt:
			n.managed = netlink.Uint32(v)&netlink.NTFExtManaged != 0
		}
	})
	// NOARP is multicast, or a link that resolves nothing.
	return key, n, key.Via.IsValid() && !proxy && n.state&unix.NUD_NOARP == 0 && n.state != 0
}

// connected reports whether the route is a connected network, in which the link's neighbours
// resolve addresses.
func connected(rt netlink.Route) (network, bool) {
	ok := rt.Kind == unix.RTN_UNICAST && !rt.Gateway.IsValid() && rt.Link != 0 && rt.Dst.Bits() > 0 &&
		!rt.Dst.IsSingleIP() && !rt.Dst.Addr().IsLinkLocalUnicast() && !rt.Dst.Addr().IsMulticast() &&
		(rt.Proto == unix.RTPROT_KERNEL || rt.Proto == unix.RTPROT_RA)
	return network{link: rt.Link, prefix: rt.Dst, table: rt.Table, metric: rt.Metric}, ok
}
