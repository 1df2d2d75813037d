package store

import (
	"net/netip"

	"loxilb/internal/lb"
)

// Reach finds the service that a packet to k's VIP and port would find, if it carried k's mark: one of the mark before
// those of any, one of the port before ranges, those before all ports of the VIP. With k.PortMax, the service is a
// range that has all of these ports.
func (s *Snapshot) Reach(k lb.Key) (found lb.Service, ok bool) {
	rank := 0
	s.services.Root().WalkPrefix(vipBytes(k), func(_ []byte, e *entry) bool {
		if n := reaches(e.service.Key, k); n > rank {
			found, ok, rank = e.service, true, n
		}
		return false
	})
	s.seconds.Root().WalkPrefix(vipBytes(k), func(_ []byte, owner lb.Key) bool {
		at := owner
		at.VIP = k.VIP
		if n := reaches(at, k); n > rank {
			found, ok = s.Get(owner)
			rank = n
		}
		return false
	})
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
func (s *Snapshot) HasVIP(a netip.Addr) (has bool) {
	s.services.Root().WalkPrefix(vipBytes(lb.Key{VIP: a}), func([]byte, *entry) bool {
		has = true
		return true
	})
	s.seconds.Root().WalkPrefix(vipBytes(lb.Key{VIP: a}), func([]byte, lb.Key) bool {
		has = true
		return true
	})
	return has
}

// checkLoops refuses services that are, by way of others, endpoints of their own.
func checkLoops(s *Snapshot, put []*entry) error {
	vips := map[netip.Addr]bool{} // endpoints are of few addresses, and hardly any has services
	hasVIP := func(a netip.Addr) bool {
		has, known := vips[a]
		if !known {
			has = s.HasVIP(a)
			vips[a] = has
		}
		return has
	}
	for _, e := range put {
		if err := checkLoop(s, &e.service, hasVIP); err != nil {
			return err
		}
	}
	return nil
}

func checkLoop(s *Snapshot, service *lb.Service, hasVIP func(netip.Addr) bool) error {
	seen := map[lb.Key]bool{}
	var leads func(*lb.Service) bool
	leads = func(from *lb.Service) bool {
		for _, e := range from.Endpoints {
			if !hasVIP(e.Addr) {
				continue
			}
			next, ok := s.Reach(lb.Key{VIP: e.Addr, Port: e.Port, PortMax: e.PortMax, Protocol: from.Protocol, Mark: service.Mark})
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
