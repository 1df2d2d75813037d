package netnstest

import (
	"errors"
	"fmt"
	"net/netip"
)

// Options vary the standard topology.
type Options struct {
	MTU        int                                   // of every link; 0 means 1500
	Forwarding bool                                  // the balancer's namespace also routes
	Link       func(l *Lab, a, b End, mtu int) error // connects a host to the balancer; nil: Lab.Link
}

// Standard is the topology of the documentation, the demo, the tests and the benchmarks: a client
// and three endpoints, each on its own link to the balancer, which is their default route.
//
//	client 100.100.100.1 --- .254 LB .254 --- 31.31.31.1 ep1
//	                                 .254 --- 32.32.32.1 ep2
//	                                 .254 --- 17.17.17.1 ep3
//
// IPv6 is the same: 2001:db8:100::1, 2001:db8:31::1, 2001:db8:32::1, 2001:db8:17::1, with ::fe for
// the balancer. The balancer's interfaces have the names of the hosts that they lead to. The hosts'
// interfaces are called eth0.
type Standard struct {
	*Lab
	Client, LB *Host
	Endpoints  [3]*Host
}

// Network is one link of the standard topology.
type Network struct {
	Host     string
	V4, V6   netip.Prefix // of the host; the network is the prefix
	GW4, GW6 netip.Addr   // of the balancer
}

// StandardNetworks returns the links of the standard topology: the client's, then the endpoints'.
func StandardNetworks() []Network {
	network := func(host, v4, gw4, v6, gw6 string) Network {
		return Network{
			Host: host,
			V4:   netip.MustParsePrefix(v4), GW4: netip.MustParseAddr(gw4),
			V6: netip.MustParsePrefix(v6), GW6: netip.MustParseAddr(gw6),
		}
	}
	return []Network{
		network("client", "100.100.100.1/24", "100.100.100.254", "2001:db8:100::1/64", "2001:db8:100::fe"),
		network("ep1", "31.31.31.1/24", "31.31.31.254", "2001:db8:31::1/64", "2001:db8:31::fe"),
		network("ep2", "32.32.32.1/24", "32.32.32.254", "2001:db8:32::1/64", "2001:db8:32::fe"),
		network("ep3", "17.17.17.1/24", "17.17.17.254", "2001:db8:17::1/64", "2001:db8:17::fe"),
	}
}

// NewStandard builds the standard topology in a lab, and closes the lab if that fails.
func NewStandard(l *Lab, o Options) (*Standard, error) {
	s := &Standard{Lab: l}
	if err := s.build(o); err != nil {
		return nil, errors.Join(fmt.Errorf("build topology: %w", err), l.Close())
	}
	return s, nil
}

func (s *Standard) build(o Options) (err error) {
	if s.LB, err = s.Host("lb"); err != nil {
		return err
	}
	for i, n := range StandardNetworks() {
		h, err := s.Host(n.Host)
		if err != nil {
			return err
		}
		if i == 0 {
			s.Client = h
		} else {
			s.Endpoints[i-1] = h
		}
		if err := s.connect(h, n, o); err != nil {
			return err
		}
	}
	if o.Forwarding {
		return errors.Join(s.LB.Sysctl("net/ipv4/ip_forward", "1"), s.LB.Sysctl("net/ipv6/conf/all/forwarding", "1"))
	}
	return nil
}

// connect joins a host to the balancer and makes the balancer its default route.
func (s *Standard) connect(h *Host, n Network, o Options) error {
	here := End{Host: h, Interface: "eth0", Addresses: []netip.Prefix{n.V4, n.V6}}
	there := End{Host: s.LB, Interface: n.Host, Addresses: []netip.Prefix{
		netip.PrefixFrom(n.GW4, n.V4.Bits()),
		netip.PrefixFrom(n.GW6, n.V6.Bits()),
	}}
	link := o.Link
	if link == nil {
		link = (*Lab).Link
	}
	if err := link(s.Lab, here, there, o.MTU); err != nil {
		return err
	}
	return errors.Join(
		h.AddRoute(netip.PrefixFrom(netip.IPv4Unspecified(), 0), n.GW4),
		h.AddRoute(netip.PrefixFrom(netip.IPv6Unspecified(), 0), n.GW6),
	)
}
