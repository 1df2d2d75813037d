package desired

import (
	"net/netip"
	"slices"

	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// Reach finds the service that a packet to k's VIP and port would find, if it had k's mark:
// services with the mark come before those without, single ports before ranges, and ranges before
// all ports of the VIP. With k.PortMax, it finds a range that contains all of these ports. The cost
// grows with the VIP's ranges.
func (s *Services) Reach(v store.View, k lb.Key) (found lb.Service, ok bool) {
	rank := 0
	if k.PortMax == 0 || k.PortMax == k.Port {
		for _, mark := range [...]uint32{k.Mark, 0} {
			exact := lb.Key{VIP: k.VIP, Port: k.Port, Protocol: k.Protocol, Mark: mark}
			if one, there := s.exactly(v, exact); there {
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

// matchRank ranks how well a service matches a packet's destination; 0: not at all.
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

// HasVIP reports whether there is a service of this address.
func (s *Services) HasVIP(v store.View, a netip.Addr) bool {
	if _, ok := s.First(v, sortOfVIP(a)); ok {
		return true
	}
	if s.isUnused(v, secondaryTotal) {
		return false
	}
	for range s.FindPrefix(v, bySecondary, sortOfVIP(a)) {
		return true
	}
	return false
}

// OfVIP finds the services of a VIP, by key, and then the services with that secondary VIP.
func (s *Services) OfVIP(v store.View, a netip.Addr) []lb.Service {
	return slices.AppendSeq(slices.Collect(s.Prefix(v, sortOfVIP(a))), s.FindPrefix(v, bySecondary, sortOfVIP(a)))
}
