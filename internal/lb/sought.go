package lb

import "net/netip"

// Sought selects connections for a search, as far as the data path can leave out others: the result
// may include some of those, too. The zero value selects all.
type Sought struct {
	Client   netip.Prefix                                 // zero: any
	VIP      netip.Addr                                   // destination of the client; zero: any
	Ports    [2]uint16                                    // of the VIP, from and to; zero: any
	Endpoint netip.Addr                                   // zero: any
	State    string                                       // one of ConnectionStates; "": any
	Requests bool                                         // without the replies
	Of       func(service string, at netip.AddrPort) bool // of which endpoints, as their services have them; nil: any
}

// All reports whether everything is selected.
func (s *Sought) All() bool {
	return s.Client == netip.Prefix{} && s.VIP == netip.Addr{} && s.Ports == [2]uint16{} && s.Endpoint == netip.Addr{} && s.State == "" && !s.Requests && s.Of == nil
}
