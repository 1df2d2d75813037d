package compile

import (
	"fmt"
	"net/netip"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
)

// mappedBits is how many of the 128 bits of an IPv4 address in the maps are the same in all.
const mappedBits = 96

// Way is what the routing table says of the way to an endpoint. The zero value: nothing, or there is none.
type Way struct {
	Source     netip.Addr // this machine's address towards it; invalid: there is none
	SourceBits uint8      // length of the network of that address, by which the endpoint is reached; 0: it is in none
	RouteBits  uint8      // length of the route that leads to the endpoint; 0: the default route
	Routed     bool       // a router is between, which is reached by its MAC address
}

// NeedsWay tells whether a connection to the endpoint depends on the way there: in default mode for clients that the endpoint would
// answer past this machine, in mode dsr since routers would send its packets back, otherwise where it sees this machine's own address.
func NeedsWay(s lb.Service, e lb.Endpoint) bool {
	switch {
	case s.Mode == lb.ModeDefault, s.Mode == lb.ModeDSR:
		return true
	case len(s.SNAT) > 0:
		return false
	}
	return s.Mode == lb.ModeOneArm || s.Mode == lb.ModeHostOneArm || s.Translates(e)
}

// Misfit says why packets of the service do not get to the endpoint in its mode; nil: they do, if they do at all.
func (w Way) Misfit(s lb.Service, e lb.Endpoint) error {
	if s.Mode != lb.ModeDSR || s.Tunnel != lb.TunnelNone || !w.Routed {
		return nil
	}
	return fmt.Errorf("endpoint %s of service %s is behind a router, and mode dsr reaches neighbours only: its packets are dropped "+
		"as dsr-routed (use --tunnel=ipip or gue, or another mode)", e.Addr, s.Key)
}

// put writes the way into an endpoint's row.
func (w Way) put(row *bpf.EndpointTable) {
	if !w.Source.IsValid() {
		return
	}
	row.Source = bpf.Addr(w.Source)
	row.SourceBits, row.AddrBits = bits128(w.Source, w.SourceBits), bits128(w.Source, w.RouteBits)
}

// bits128 is a prefix length as it is in the maps, where an IPv4 address has 128 bits, too. 0 stays 0.
func bits128(a netip.Addr, bits uint8) uint8 {
	if a.Is4() && bits > 0 {
		return mappedBits + bits
	}
	return bits
}
