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
	Source     netip.Addr // this machine's address towards it; invalid: none
	SourceBits uint8      // prefix length of that address's network, through which the endpoint is reached; 0: it is in none
	RouteBits  uint8      // prefix length of the route to the endpoint; 0: the default route
	Routed     bool       // the path leads through a router, whose MAC address is used
	Returns    bool       // the host is a container of this machine: its answers to any client pass this machine
}

// NeedsPath reports whether a connection to the endpoint depends on the path. In modes default and
// auto the endpoint might answer clients past this machine. In mode dsr a router would send packets
// back. In the other modes it matters where the endpoint sees this machine's address.
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
func (w Path) Check(s lb.Service, e lb.Endpoint) error {
	if s.Mode != lb.ModeDSR || s.Tunnel != lb.TunnelNone || !w.Routed {
		return nil
	}
	return fmt.Errorf("endpoint %s of service %s is behind a router, and mode dsr reaches neighbours only: its packets are dropped "+
		"as dsr-routed (use --tunnel=ipip or gue, or another mode)", e.Addr, s.Key)
}

// put writes the path into the row of an endpoint of the service. Without a path, an endpoint in
// mode auto does not see clients: the packet path makes an exception for addresses of this machine.
func (w Path) put(s *lb.Service, e lb.Endpoint, row *bpf.EndpointTable) {
	row.SNAT = s.Mode == lb.ModeAuto && (!w.Returns || s.Translates(e))
	if !w.Source.IsValid() {
		return
	}
	row.Source = bpf.Addr(w.Source)
	row.SourceBits, row.AddrBits = bits128(w.Source, w.SourceBits), bits128(w.Source, w.RouteBits)
}

// bits128 returns a prefix length as the maps store it: IPv4 addresses have 128 bits there, too. 0
// stays 0.
func bits128(a netip.Addr, bits uint8) uint8 {
	if a.Is4() && bits > 0 {
		return mappedBits + bits
	}
	return bits
}
