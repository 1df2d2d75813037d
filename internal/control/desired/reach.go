package desired

import (
	"net/netip"
	"slices"

	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// Reach returns the service that packets with k's VIP, port, protocol and mark reach: services with
// the mark precede those without, single ports precede ranges, and ranges precede all ports of the
// VIP. With k.PortMax, it returns a range that contains all of these ports. The cost grows with the
// number of the VIP's ranges.
func (s *Services) Reach(v store.View, k lb.Key) (found lb.Service, ok bool) {
	rank := 0
	if k.PortMax == 0 || k.PortMax == k.Port {
		for _, mark := range [...]uint32{k.Mark, 0} {
			exact := lb.Key{VIP: k.VIP, Port: k.Port, Protocol: k.Protocol, Mark: mark}
			if one, there := s.getExact(v, exact); there {
				found, ok, rank = one, true, matchRank(exact, k)
				break
			}
		}
	}
	for at, one := range s.ranges(v, k.VIP) {
		if n := matchRank(at, k); n > rank {
			found, ok, rank = one, true, n
		}
	}
	return found, ok
}

// matchRank returns how specifically a service matches packets of k; 0: it does not.
func matchRank(s, k lb.Key) int {
	if s.Protocol != k.Protocol || (s.Mark != 0 && s.Mark != k.Mark) ||
		k.Port < s.Port || max(k.Port, k.PortMax) > max(s.Port, s.PortMax) {
		return 0
	}
	rank := 1
	switch {
	case s.PortMax == 0:
		rank = 3
	case !s.AllPorts():
		rank = 2
	}
	if s.Mark != 0 {
		rank += 3
	}
	return rank
}

// HasVIP reports whether any service has the address, as its VIP or as an additional one.
func (s *Services) HasVIP(v store.View, a netip.Addr) bool {
	if _, ok := s.First(v, sortPrefixOfVIP(a)); ok {
		return true
	}
	if s.isUnused(v, secondaryTotal) {
		return false
	}
	for range s.FindPrefix(v, bySecondary, sortPrefixOfVIP(a)) {
		return true
	}
	return false
}

// OfVIP returns the services with this VIP, ordered by key, followed by the services that have it
// as an additional VIP.
func (s *Services) OfVIP(v store.View, a netip.Addr) []lb.Service {
	return slices.AppendSeq(slices.Collect(s.Prefix(v, sortPrefixOfVIP(a))), s.FindPrefix(v, bySecondary, sortPrefixOfVIP(a)))
}
