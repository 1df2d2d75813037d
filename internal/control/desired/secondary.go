package desired

import (
	"strconv"

	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// checkOverlap refuses a range of ports that overlaps another. The cost grows with the VIP's
// ranges; a service with one port costs nothing.
func (s *Services) checkOverlap(v store.View, service *lb.Service) error {
	k := service.Key
	if k.PortMax == 0 {
		return nil
	}
	for one := range s.Find(v, byRange, sortPrefixOfVIP(k.VIP)) {
		if one.Key != k && one.Key.Overlaps(k) {
			return lb.NewFieldError(lb.FieldPorts, strconv.Itoa(int(k.Port))+"-"+strconv.Itoa(int(k.PortMax)),
				"overlaps with service "+one.Key.String(), "ports that no other range of the VIP, protocol and mark has")
		}
	}
	return nil
}

// checkSecondary refuses a service whose ports are in use at its additional VIPs, or at its VIP by
// a service that has that as an additional VIP.
func (s *Services) checkSecondary(v store.View, service *lb.Service) error {
	for _, k := range service.AdditionalKeys() {
		if _, ok := s.Get(v, k); ok {
			return errAddressTaken(k, k)
		}
		if other, ok := s.conflict(v, k, service.Key); ok {
			return errAddressTaken(k, other)
		}
	}
	if other, ok := s.conflict(v, service.Key, service.Key); ok {
		if service.VIP.IsUnspecified() {
			return errLocalPortsTaken(other)
		}
		return lb.NewFieldError(lb.FieldVIP, service.VIP.String(), "is a secondary VIP of service "+other.String()+", with the same ports",
			"another VIP, or other ports")
	}
	return nil
}

func errAddressTaken(k, other lb.Key) error {
	if k.VIP.IsUnspecified() {
		return errLocalPortsTaken(other)
	}
	return lb.NewFieldError(lb.FieldSecondary, k.VIP.String(), "already has the ports of service "+other.String(),
		"an address on which no other service has these ports, protocol and mark")
}

func errLocalPortsTaken(other lb.Key) error {
	return lb.NewFieldError(lb.FieldMode, lb.ModeHostOneArm.String(), "serves every local address, where service "+other.String()+" already has these ports",
		"mode onearm, or ports that no other service has at every local address")
}

// conflict returns a service other than self that has k at an additional VIP, or a range at any VIP
// that overlaps k's ports.
func (s *Services) conflict(v store.View, k, self lb.Key) (lb.Key, bool) {
	if k.PortMax == 0 && s.isUnused(v, secondaryTotal) {
		return lb.Key{}, false
	}
	for one := range s.Find(v, bySecondary, sortKey(k)) {
		if one.Key != self {
			return one.Key, true
		}
	}
	if k.PortMax == 0 {
		return lb.Key{}, false
	}
	for at, one := range s.ranges(v, k.VIP) {
		if one.Key != self && at.Overlaps(k) {
			return one.Key, true
		}
	}
	return lb.Key{}, false
}
