package main

import (
	"context"
	"net/netip"

	"loxilb/test/netnstest"
)

// service is what a contender is to balance for a work.
type service struct {
	name         string
	protocol     string // tcp or udp
	port, target int    // of the VIP, of the endpoints
	udp          int    // port of a UDP service beside it, of the VIP and of the endpoints; 0: none
	tcp          int    // port of a second TCP service, likewise
	v6           bool   // over IPv6
	endpoints    int    // 0: as many as the contender balances over
	held         int    // connections that it must hold at once, if they are many
	serve        func(context.Context, *rig, *netnstest.Host) error
}

// vip returns the address of every service. No interface has it; those contenders that need that
// put it on lo.
func (s service) vip() netip.Addr {
	if s.v6 {
		return netip.MustParseAddr("2001:db8:20::1")
	}
	return netip.MustParseAddr("20.20.20.1")
}

// address returns the VIP with the service's port.
func (s service) address() netip.AddrPort { return netip.AddrPortFrom(s.vip(), uint16(s.port)) }

// balancedPort is one that is balanced, of the VIP and of the endpoints.
type balancedPort struct {
	protocol     string
	port, target int
}

// at returns the port of an endpoint with an address.
func (p balancedPort) at(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, uint16(p.target)) }

// ports returns all that are balanced, the service's own first.
func (s service) ports() []balancedPort {
	out := []balancedPort{{s.protocol, s.port, s.target}}
	if s.tcp > 0 {
		out = append(out, balancedPort{"tcp", s.tcp, s.tcp})
	}
	if s.udp > 0 {
		out = append(out, balancedPort{"udp", s.udp, s.udp})
	}
	return out
}

// addressOf returns the address of a host of the topology, in the service's family.
func (s service) addressOf(h *netnstest.Host) netip.Addr {
	for _, n := range netnstest.StandardNetworks() {
		if n.Host == h.Name {
			if s.v6 {
				return n.V6.Addr()
			}
			return n.V4.Addr()
		}
	}
	return netip.Addr{}
}

// addresses returns those of the endpoints.
func (s service) addresses(r *rig) (out []netip.Addr) {
	for _, h := range r.serving {
		out = append(out, s.addressOf(h))
	}
	return out
}

// direct returns the address of one end of the link that joins an endpoint to the client.
func (s service) direct(endpoint int, end byte) netip.Prefix {
	if s.v6 {
		return netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, 0x44, 0, byte(endpoint), 15: end}), 64)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{44, 44, byte(endpoint), end}), 24)
}

// clients returns the networks that clients of many addresses connect from; all addresses of the
// second are the client's own.
func (s service) clients() []netip.Prefix {
	n := netnstest.StandardNetworks()[0]
	if s.v6 {
		return []netip.Prefix{n.V6.Masked(), manyV6()}
	}
	return []netip.Prefix{n.V4.Masked(), manyV4()}
}
