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
	for one := range s.Find(v, byRange, sortOfVIP(k.VIP)) {
		if one.Key != k && one.Key.Overlaps(k) {
			return lb.NewFieldError(lb.FieldPorts, strconv.Itoa(int(k.Port))+"-"+strconv.Itoa(int(k.PortMax)),
				"overlaps with service "+one.Key.String(), "ports that no other range of the VIP, protocol and mark has")
		}
	}
	return nil
}

// checkSecondary refuses a service whose secondary VIPs have ports of another service, or whose own
// ports are in use at another's secondary VIP.
func (s *Services) checkSecondary(v store.View, service *lb.Service) error {
	for _, k := range service.AdditionalKeys() {
		if _, ok := s.Get(v, k); ok {
			return furtherTaken(k, k)
		}
		if other, ok := s.conflict(v, k, service.Key); ok {
			return furtherTaken(k, other)
		}
	}
	if other, ok := s.conflict(v, service.Key, service.Key); ok {
		if service.VIP.IsUnspecified() {
			return everyLocalTaken(other)
		}
		return lb.NewFieldError(lb.FieldVIP, service.VIP.String(), "is a secondary VIP of service "+other.String()+", with the same ports",
			"another VIP, or other ports")
	}
	return nil
}

func furtherTaken(k, other lb.Key) error {
	if k.VIP.IsUnspecified() {
		return everyLocalTaken(other)
	}
	return lb.NewFieldError(lb.FieldSecondary, k.VIP.String(), "has the ports of service "+other.String()+" already",
		"an address on which no other service has these ports, protocol and mark")
}

func everyLocalTaken(other lb.Key) error {
	return lb.NewFieldError(lb.FieldMode, lb.ModeHostOneArm.String(), "serves every local address, where service "+other.String()+" has the ports already",
		"mode onearm, or ports that no other service has at every local address")
}

// conflict finds another service than self that has k at a secondary VIP, or a range that overlaps
// k's ports at any VIP.
func (s *Services) conflict(v store.View, k, self lb.Key) (lb.Key, bool) {
	if k.PortMax == 0 && s.isUnused(v, secondaryTotal) {
		return lb.Key{}, false
	}
	for one := range s.Find(v, bySecondary, sortOf(k)) {
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
