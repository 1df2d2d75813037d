package desired

import (
	"net/netip"

	"loxilb/internal/lb"
	"loxilb/internal/store"
)

// Reach finds the service that a packet to k's VIP and port would find, if it carried k's mark: one of the mark before
// those of any, one of the port before ranges, those before all ports of the VIP. With k.PortMax, the service is a
// range that has all of these ports. It costs as much as the VIP has ranges.
func (s *Services) Reach(v store.View, k lb.Key) (found lb.Service, ok bool) {
	rank := 0
	if k.PortMax == 0 || k.PortMax == k.Port {
		for _, mark := range [...]uint32{k.Mark, 0} {
			exact := lb.Key{VIP: k.VIP, Port: k.Port, Protocol: k.Protocol, Mark: mark}
			if one, there := s.exactly(v, exact); there {
				found, ok, rank = one, true, reaches(exact, k)
				break
			}
		}
	}
	for at, one := range s.ranges(v, k.VIP) {
		if n := reaches(at, k); n > rank {
			found, ok, rank = one, true, n
		}
	}
	return found, ok
}

// reaches says how well a service fits what packets are addressed to; 0: not at all.
func reaches(s, k lb.Key) int {
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

// HasVIP tells whether there is a service of this address.
func (s *Services) HasVIP(v store.View, a netip.Addr) bool {
	if _, ok := s.First(v, sortOfVIP(a)); ok {
		return true
	}
	for range s.FindPrefix(v, bySecondary, sortOfVIP(a)) {
		return true
	}
	return false
}

// checkLoops refuses services that are, by way of others, endpoints of their own.
func (s *Services) checkLoops(at *store.Snapshot, put []lb.Service) error {
	vips := map[netip.Addr]bool{} // endpoints are of few addresses, and hardly any has services
	hasVIP := func(a netip.Addr) bool {
		has, known := vips[a]
		if !known {
			has = s.HasVIP(at, a)
			vips[a] = has
		}
		return has
	}
	for i := range put {
		if err := s.checkLoop(at, &put[i], hasVIP); err != nil {
			return err
		}
	}
	return nil
}

func (s *Services) checkLoop(at *store.Snapshot, service *lb.Service, hasVIP func(netip.Addr) bool) error {
	seen := map[lb.Key]bool{}
	var leads func(*lb.Service) bool
	leads = func(from *lb.Service) bool {
		for _, e := range from.Endpoints {
			if !hasVIP(e.Addr) {
				continue
			}
			next, ok := s.Reach(at, lb.Key{VIP: e.Addr, Port: e.Port, PortMax: e.PortMax, Protocol: from.Protocol, Mark: service.Mark})
			if !ok || seen[next.Key] {
				continue
			}
			seen[next.Key] = true
			if next.Key == service.Key || leads(&next) {
				return true
			}
		}
		return false
	}
	if !leads(service) {
		return nil
	}
	return lb.NewFieldError(lb.FieldEndpoints, service.Key.String(), "lead back to the service itself, by way of other services",
		"endpoints that do not")
}
