package netobj

import (
	"net/netip"
	"slices"

	"loxilb/internal/lb/policy"
)

// IsNeededBy reports whether a session of this machine would end if the address were removed. The
// kernel removes a network with its last address, and secondary IPv4 addresses with the first
// address of their network. seen has the addresses of all interfaces, in the kernel's order.
func (a Address) IsNeededBy(s *policy.AcceptedConnection, seen []DeviceAddresses) bool {
	if s.Local.Addr() == a.Prefix.Addr() {
		return true
	}
	var same []netip.Prefix // other addresses of the interface in the same network
	for _, d := range seen {
		for _, p := range d.Addresses {
			if d.Dev == a.Dev && p.Masked() == a.Prefix.Masked() {
				same = append(same, p)
			}
		}
	}
	if len(same) > 1 && (a.Prefix.Addr().Is6() || same[0] != a.Prefix) {
		return false
	}
	return s.Out == a.Dev && s.Route == a.Prefix.Masked() ||
		slices.ContainsFunc(same, func(p netip.Prefix) bool { return p.Addr() == s.Local.Addr() })
}

// IsNeededBy reports whether answers of the session use the route, even if another route could
// replace it.
func (r Route) IsNeededBy(s *policy.AcceptedConnection) bool {
	return s.Route == r.Destination && s.Metric == r.Metric
}

// DeviceIsNeededBy reports whether the session would end if the interface were removed.
func DeviceIsNeededBy(name string, s *policy.AcceptedConnection) bool {
	return s.Interface == name || s.Out == name
}
