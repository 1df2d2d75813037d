package lb

import (
	"net/netip"
	"slices"
)

// Translates reports whether packets between the VIP's clients and an endpoint change the IP
// version (NAT64, NAT46). Such an endpoint sees an address of the load balancer, whatever the mode.
func (s Service) Translates(e Endpoint) bool {
	return e.Addr.Is4() != s.VIP.Is4() && s.Tunnel == TunnelNone
}

// validateFamily checks that the load balancer has an address of the endpoint's IP version that the
// endpoint can see as its client.
func (s Service) validateFamily(e Endpoint) error {
	sameFamily := func(a netip.Addr) bool { return a.Is4() == e.Addr.Is4() }
	switch {
	case len(s.SNAT) > 0 && !slices.ContainsFunc(s.SNAT, sameFamily):
		return NewFieldError(FieldEndpointAddress, e.Addr.String(), "is "+family(e.Addr)+", and none of the source addresses is",
			"endpoints of their IP version, or --snat with an "+family(e.Addr)+" address")
	case !s.Translates(e):
		return nil
	case s.Mode == ModeDSR:
		return NewFieldError(FieldEndpointAddress, e.Addr.String(),
			"is "+family(e.Addr)+", and the VIP, which it answers as in mode "+s.Mode.String()+", is "+family(s.VIP),
			family(s.VIP)+" addresses, a tunnel, or another mode")
	}
	return nil
}
