package lb

import "net/netip"

// Sought is which connections a search is for, as far as the data path can leave out others: it may
// find some of those, too. The zero value is all.
type Sought struct {
	Client   netip.Prefix                                 // zero: any
	VIP      netip.Addr                                   // what the client talks to; zero: any
	Ports    [2]uint16                                    // of it, from and to; zero: any
	Endpoint netip.Addr                                   // zero: any
	State    string                                       // one of ConnectionStates; "": any
	Requests bool                                         // without the replies
	Of       func(service string, at netip.AddrPort) bool // of which endpoints, as their services have them; nil: any
}

// All tells whether there is nothing to leave out.
func (s *Sought) All() bool {
	return s.Client == netip.Prefix{} && s.VIP == netip.Addr{} && s.Ports == [2]uint16{} && s.Endpoint == netip.Addr{} && s.State == "" && !s.Requests && s.Of == nil
}
