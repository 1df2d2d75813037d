package compile

import (
	"fmt"
	"net/netip"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
)

// mappedBits is the number of constant bits among the 128 of an IPv4 address in the maps.
const mappedBits = 96

// Path is the routing table's path to an endpoint. The zero value means that it is unknown or that
// there is no route.
type Path struct {
	Source     netip.Addr // this machine's address towards the endpoint; invalid: none
	SourceBits uint8      // prefix length of that address's network if the endpoint is reached through it; otherwise 0
	RouteBits  uint8      // prefix length of the route to the endpoint; 0: the default route
	Routed     bool       // the path leads through a router, whose MAC address is used
	Returns    bool       // the endpoint is a container of this machine: its answers to any client pass this machine
}

// NeedsPath reports whether connections to the endpoint depend on the path. In modes default and
// auto, the endpoint's answers might bypass this machine. In mode dsr, a router would send packets
// back. In the other modes, the path determines this machine's address that the endpoint sees.
func NeedsPath(s lb.Service, e lb.Endpoint) bool {
	switch {
	case s.Mode == lb.ModeDefault, s.Mode == lb.ModeDSR, s.Mode == lb.ModeAuto:
		return true
	case len(s.SNAT) > 0:
		return false
	}
	return s.Mode == lb.ModeOneArm || s.Mode == lb.ModeHostOneArm || s.Translates(e)
}

// Check returns an error if packets of the service cannot reach the endpoint in its mode.
func (p Path) Check(s lb.Service, e lb.Endpoint) error {
	if s.Mode != lb.ModeDSR || s.Tunnel != lb.TunnelNone || !p.Routed {
		return nil
	}
	return fmt.Errorf("endpoint %s of service %s is behind a router, but mode dsr reaches only neighbours: its packets are dropped "+
		"as dsr-routed (use --tunnel=ipip or gue, or another mode)", e.Addr, s.Key)
}

// writeTo writes the path to the row of an endpoint of the service. In mode auto, an endpoint
// without a path does not see clients' addresses, unless the packet path finds that it is at this
// machine.
func (p Path) writeTo(s *lb.Service, e lb.Endpoint, row *bpf.EndpointTable) {
	row.SNAT = s.Mode == lb.ModeAuto && (!p.Returns || s.Translates(e))
	if !p.Source.IsValid() {
		return
	}
	row.Source = bpf.Addr(p.Source)
	row.SourceBits, row.AddrBits = bits128(p.Source, p.SourceBits), bits128(p.Source, p.RouteBits)
}

// bits128 converts a prefix length to that of an address in the maps, where IPv4 addresses also
// have 128 bits. 0 stays 0.
func bits128(a netip.Addr, bits uint8) uint8 {
	if a.Is4() && bits > 0 {
		return mappedBits + bits
	}
	return bits
}
