package lb

import (
	"net/netip"
	"slices"
	"strconv"
)

// Mode is the translation of packets on their path to an endpoint. The numbers are the REST API's.
type Mode uint8

// The modes. The existing loxilb has all but ModeAuto.
const (
	ModeDefault    Mode = 0
	ModeOneArm     Mode = 1
	ModeFullNAT    Mode = 2
	ModeDSR        Mode = 3
	ModeFullProxy  Mode = 4
	ModeHostOneArm Mode = 5
	ModeAuto       Mode = 6
)

func modes() []choice[Mode] {
	return []choice[Mode]{
		{value: ModeDefault, word: "default", help: "destination NAT: keeps the client's address"},
		{value: ModeOneArm, word: "onearm", help: "replaces the client's address with the load balancer's"},
		{value: ModeFullNAT, word: "fullnat", help: "replaces the client's address with the VIP"},
		{value: ModeDSR, word: "dsr", help: "changes only the MAC address: endpoints also own the VIP and answer clients directly"},
		{value: ModeFullProxy, word: "fullproxy", help: "terminates connections, and opens others to the endpoints", alternative: "let HAProxy or Envoy listen at the endpoints of a service of mode default"},
		{value: ModeHostOneArm, word: "hostonearm", help: "like onearm, at the VIP and at every local address; VIP 0.0.0.0 or :: is local addresses alone"},
		{value: ModeAuto, word: "auto", help: "keeps the client's address for endpoints of this node, whose answers pass it, and like onearm for others"},
	}
}

// TranslatesSource reports whether endpoints see an address of the load balancer instead of the
// client's; in ModeAuto, some of them.
func (m Mode) TranslatesSource() bool {
	return m == ModeOneArm || m == ModeFullNAT || m == ModeHostOneArm || m == ModeAuto
}

// String returns the existing loxilb's word.
func (m Mode) String() string { return wordOf("mode", m, modes()) }

// ParseMode parses the word or the number; "" means the default.
func ParseMode(s string) (Mode, error) {
	return parseWordOrNumber(FieldMode, s, modes())
}

// Tunnel is the outer header of packets of a service in mode dsr, which lets them reach endpoints
// behind routers and of the other IP version.
type Tunnel uint8

// The tunnels.
const (
	TunnelNone Tunnel = iota
	TunnelIPIP
	TunnelGUE
)

func tunnels() []choice[Tunnel] {
	return []choice[Tunnel]{
		{value: TunnelNone, word: "none", help: "no tunnel: sent to the endpoint's MAC address"},
		{value: TunnelIPIP, word: "ipip", help: "an outer IPv4 or IPv6 header, following the endpoint's address"},
		{value: TunnelGUE, word: "gue", help: "an outer IP header and a UDP header to port 6080"},
	}
}

// String returns the word of flags, JSON and text.
func (t Tunnel) String() string { return wordOf("tunnel", t, tunnels()) }

func (s Service) validateTunnel() error {
	if err := wordError(FieldTunnel, s.Tunnel, tunnels()); err != nil {
		return err
	}
	if s.Tunnel != TunnelNone && s.Mode != ModeDSR {
		return NewFieldError(FieldTunnel, s.Tunnel.String(), "is set, but mode is "+s.Mode.String(), "none, or mode dsr")
	}
	return nil
}

// validateMode checks the mode's requirements on the rest of the service.
func (s Service) validateMode() error {
	if s.Mode != ModeHostOneArm && s.VIP.IsUnspecified() && !s.egressByRules() {
		return NewFieldError(FieldVIP, s.VIP.String(), "is every local address, which only mode "+ModeHostOneArm.String()+", and mode "+
			ModeDefault.String()+" with egress, support", "a unicast address that can be routed")
	}
	if err := s.validateEgress(); err != nil {
		return err
	}
	if err := s.validateProxyProtocol(); err != nil {
		return err
	}
	if err := s.validateHelper(); err != nil {
		return err
	}
	return s.validateSNAT()
}

// egressByRules reports whether the outgoing connections of the endpoints get their source from
// firewall rules, as the existing loxilb expresses it: the service has no address for them.
func (s Service) egressByRules() bool {
	return s.Egress && s.Mode == ModeDefault && s.VIP.IsUnspecified()
}

// HasEgressSource reports whether connections that the endpoints open leave with an address of the
// service.
func (s Service) HasEgressSource() bool { return s.Egress && !(s.egressByRules() && len(s.SNAT) == 0) }

func (s Service) validateEgress() error {
	switch {
	case !s.HasEgressSource():
		return nil
	case !s.Protocol.HasPorts():
		return NewFieldError(FieldEgress, "true", "gives out source ports, and "+s.Protocol.String()+" has none", "false")
	}
	for _, e := range s.Endpoints {
		same := func(a netip.Addr) bool { return a.Is4() == e.Addr.Is4() }
		if !slices.ContainsFunc(s.SNAT, same) && (s.VIP.IsUnspecified() || !same(s.VIP)) {
			return NewFieldError(FieldEgress, "true", "has no address for endpoint "+e.Addr.String()+", which is "+IPVersion(e.Addr),
				"false, or an address of that IP version in "+FieldSNAT)
		}
	}
	return nil
}

func (s Service) validateSNAT() error {
	if len(s.SNAT) == 0 {
		return nil
	}
	first := s.SNAT[0].String()
	if !s.Mode.TranslatesSource() && !s.Egress {
		return NewFieldError(FieldSNAT, first, "is set, but mode "+s.Mode.String()+" keeps the source", "none, or mode onearm, fullnat, hostonearm or auto, or egress")
	}
	if n := len(s.SNAT); n > MaxSNAT {
		return NewFieldError(FieldSNAT, strconv.Itoa(n), "is too many", "up to "+strconv.Itoa(MaxSNAT)+" addresses")
	}
	seen := make(map[netip.Addr]bool, len(s.SNAT))
	for _, a := range s.SNAT {
		if err := CheckRoutable(FieldSNAT, a); err != nil {
			return err
		}
		if !slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return e.Addr.Is4() == a.Is4() }) {
			return NewFieldError(FieldSNAT, a.String(), "is "+IPVersion(a)+", and no endpoint is", "addresses of the endpoints' IP version")
		}
		if seen[a] {
			return NewFieldError(FieldSNAT, a.String(), "is given twice", "each address once")
		}
		seen[a] = true
	}
	return nil
}

// AdditionalVIPs returns the addresses of the service besides its VIP. In mode hostonearm, unless
// its VIP is unspecified, it includes the unspecified address, which means every local address.
func (s Service) AdditionalVIPs() []netip.Addr {
	if s.Mode != ModeHostOneArm || s.VIP.IsUnspecified() {
		return s.Secondary
	}
	every := netip.IPv4Unspecified()
	if s.VIP.Is6() {
		every = netip.IPv6Unspecified()
	}
	return append(slices.Clip(s.Secondary), every)
}

// AdditionalKeys returns the service's key at each of its AdditionalVIPs.
func (s Service) AdditionalKeys() []Key {
	vips := s.AdditionalVIPs()
	keys := make([]Key, len(vips))
	for i, a := range vips {
		keys[i] = s.Key
		keys[i].VIP = a
	}
	return keys
}

func (s Service) validateSecondary() error {
	if len(s.Secondary) == 0 {
		return nil
	}
	first := s.Secondary[0].String()
	if s.Protocol == SCTP && s.Mode == ModeDSR {
		return NewFieldError(FieldSecondary, first, "is set, but endpoints answer SCTP's clients directly in mode dsr", "none; endpoints list the VIPs that they have")
	}
	if n := len(s.Secondary); n > MaxSecondary {
		return NewFieldError(FieldSecondary, strconv.Itoa(n), "is too many", "up to "+strconv.Itoa(MaxSecondary)+" addresses")
	}
	if s.VIP.IsUnspecified() {
		return NewFieldError(FieldSecondary, first, "is set, but the service is of every local address", "none")
	}
	seen := map[netip.Addr]bool{s.VIP: true}
	for _, a := range s.Secondary {
		if err := CheckRoutable(FieldSecondary, a); err != nil {
			return err
		}
		if a.Is4() != s.VIP.Is4() {
			return NewFieldError(FieldSecondary, a.String(), "is "+IPVersion(a)+", and the VIP is "+IPVersion(s.VIP), IPVersion(s.VIP)+" addresses")
		}
		if seen[a] {
			return NewFieldError(FieldSecondary, a.String(), "is given twice", "each address once, and not the VIP")
		}
		seen[a] = true
	}
	return nil
}

// Translates reports whether packets change the IP version between clients and an endpoint (NAT64,
// NAT46). Such an endpoint sees an address of the load balancer, whatever the mode.
func (s Service) Translates(e Endpoint) bool {
	return e.Addr.Is4() != s.VIP.Is4() && s.Tunnel == TunnelNone
}

// validateFamily checks that the load balancer has an address of the endpoint's IP version that the
// endpoint can see as its client.
func (s Service) validateFamily(e Endpoint) error {
	sameFamily := func(a netip.Addr) bool { return a.Is4() == e.Addr.Is4() }
	switch {
	case len(s.SNAT) > 0 && !slices.ContainsFunc(s.SNAT, sameFamily):
		return NewFieldError(FieldEndpointAddress, e.Addr.String(), "is "+IPVersion(e.Addr)+", and none of the source addresses is",
			"endpoints of their IP version, or --snat with an "+IPVersion(e.Addr)+" address")
	case !s.Translates(e):
		return nil
	case s.Mode == ModeDSR:
		return NewFieldError(FieldEndpointAddress, e.Addr.String(),
			"is "+IPVersion(e.Addr)+", and the VIP, which it answers as in mode "+s.Mode.String()+", is "+IPVersion(s.VIP),
			IPVersion(s.VIP)+" addresses, a tunnel, or another mode")
	}
	return nil
}
