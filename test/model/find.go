package model

import (
	"net/netip"
	"slices"

	"loxilb/internal/lb"
	"loxilb/internal/pkt"
)

// tupleOf returns the tuple of a packet. In an ICMP echo, the identifier is the requester's port;
// the other side's port is 0.
func tupleOf(p *pkt.Packet) tuple {
	src, dst, id := p.SrcAddr(), p.DstAddr(), uint16(p.Num(pkt.EchoID))
	switch p.Proto {
	case pkt.TCP:
		return tuple{lb.TCP, src, dst}
	case pkt.UDP:
		return tuple{lb.UDP, src, dst}
	}
	proto := lb.ICMP
	if p.Is6() {
		proto = lb.ICMPv6
	}
	if isEchoReply(p) {
		return tuple{proto, netip.AddrPortFrom(src.Addr(), 0), netip.AddrPortFrom(dst.Addr(), id)}
	}
	return tuple{proto, netip.AddrPortFrom(src.Addr(), id), netip.AddrPortFrom(dst.Addr(), 0)}
}

func isEchoReply(p *pkt.Packet) bool {
	return p.Proto == pkt.ICMP && p.Num(pkt.Type) == 0 || p.Proto == pkt.ICMP6 && p.Num(pkt.Type) == 129
}

// find returns the service of a packet. A service of the packet's mark precedes those of any mark,
// a service of one port those of port ranges, and a service of the packet's address those of all
// addresses of the load balancer.
func (m *Model) find(key tuple) *service {
	if key.proto == lb.ICMPv6 {
		key.proto = lb.ICMP
	}
	vips := []netip.Addr{key.dst.Addr()}
	if slices.Contains(ownAddresses(), key.dst.Addr()) {
		vips = append(vips, anyAddr(key.dst.Addr()))
	}
	for _, vip := range vips {
		for _, mark := range slices.Compact([]uint32{m.mark, 0}) {
			if svc := m.findPort(lb.Key{VIP: vip, Port: key.dst.Port(), Protocol: key.proto, Mark: mark}); svc != nil {
				return svc
			}
		}
	}
	return nil
}

// findPort returns the service of a port, otherwise the service with the narrowest range that
// contains the port. Ranges do not overlap, except for the range of all ports.
func (m *Model) findPort(key lb.Key) *service {
	if svc := m.services[key]; svc != nil {
		return svc
	}
	var best *service
	for k, svc := range m.services {
		ports := k.PortMax - k.Port
		if k.VIP != key.VIP || k.Protocol != key.Protocol || k.Mark != key.Mark || k.PortMax == 0 || key.Port < k.Port || key.Port > k.PortMax {
			continue
		}
		if best == nil || ports < best.PortMax-best.Port {
			best = svc
		}
	}
	return best
}

// ownAddresses returns the load balancer's addresses.
func ownAddresses() []netip.Addr {
	var all []netip.Addr
	for _, a := range []string{"198.51.100.254", "192.168.1.254", "2001:db8:1::fe", "2001:db8:2::fe"} {
		all = append(all, netip.MustParseAddr(a))
	}
	return all
}

func anyAddr(a netip.Addr) netip.Addr {
	if a.Is6() {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// allows reports whether a source may open connections.
func (s *service) allows(a netip.Addr) bool {
	return len(s.Sources) == 0 || slices.ContainsFunc(s.Sources, func(p netip.Prefix) bool { return p.Contains(a) })
}

// denies reports whether a source may open none.
func (s *service) denies(a netip.Addr) bool {
	return slices.ContainsFunc(s.Denied, func(p netip.Prefix) bool { return p.Contains(a) })
}

// listenAddress returns the endpoint's address for connections to a port of the service. The
// endpoint has one port, or one for each port of the service.
func (s *service) listenAddress(e *endpoint, port uint16) netip.AddrPort {
	i := slices.Index(s.endpoints, e)
	if s.Endpoints[i].PortMax == 0 {
		return e.addr
	}
	return netip.AddrPortFrom(e.addr.Addr(), e.addr.Port()+port-s.Port)
}
