package store

import "loxilb/internal/lb"

func secondaryTaken(k, other lb.Key) error {
	return lb.NewFieldError(lb.FieldSecondary, k.VIP.String(), "has the ports of service "+other.String()+" already",
		"an address on which no other service has these ports, protocol and mark")
}

// checkSecondary refuses a service whose further VIPs have ports that are another's, and one whose own ports are at
// another's further VIP. It costs nothing while no service has any.
func checkSecondary(s *Snapshot, service *lb.Service) error {
	for _, k := range service.SecondaryKeys() {
		if _, ok := s.services.Get(keyBytes(k)); ok {
			return secondaryTaken(k, k)
		}
		if other, ok := s.overlap(k, service.Key); ok {
			return secondaryTaken(k, other)
		}
	}
	if s.seconds.Len() == 0 {
		return nil
	}
	other, ok := s.seconds.Get(keyBytes(service.Key))
	if !ok {
		other, ok = s.overlap(service.Key, service.Key)
	}
	if ok {
		return lb.NewFieldError(lb.FieldVIP, service.VIP.String(), "is a secondary VIP of service "+other.String()+", with the same ports",
			"another VIP, or other ports")
	}
	return nil
}

// overlap finds a service but self whose range of ports has some of k's, at its own VIP or another.
func (s *Snapshot) overlap(k, self lb.Key) (found lb.Key, ok bool) {
	if k.PortMax == 0 {
		return found, false
	}
	s.services.Root().WalkPrefix(vipBytes(k), func(_ []byte, e *entry) bool {
		if o := e.service.Key; o != self && o.Overlaps(k) {
			found, ok = o, true
		}
		return ok
	})
	if !ok {
		s.seconds.Root().WalkPrefix(vipBytes(k), func(_ []byte, owner lb.Key) bool {
			o := owner
			o.VIP = k.VIP
			if owner != self && o.Overlaps(k) {
				found, ok = owner, true
			}
			return ok
		})
	}
	return found, ok
}
