package lb

import (
	"net/netip"
	"strconv"
)

// SecondaryKeys returns the keys of the secondary VIPs.
func (s Service) SecondaryKeys() []Key {
	keys := make([]Key, len(s.Secondary))
	for i, a := range s.Secondary {
		keys[i] = s.Key
		keys[i].VIP = a
	}
	return keys
}

func (s Service) validateSecondary() error {
	if len(s.Secondary) == 0 {
		return nil
	}
	first := s.Secondary[0].String()
	if n := len(s.Secondary); n > MaxSecondary {
		return NewFieldError(FieldSecondary, strconv.Itoa(n), "is too many", "up to "+strconv.Itoa(MaxSecondary)+" addresses")
	}
	if s.VIP.IsUnspecified() {
		return NewFieldError(FieldSecondary, first, "is given, and the service is of every local address", "none")
	}
	seen := map[netip.Addr]bool{s.VIP: true}
	for _, a := range s.Secondary {
		if err := addrUse(FieldSecondary, a); err != nil {
			return err
		}
		if a.Is4() != s.VIP.Is4() {
			return NewFieldError(FieldSecondary, a.String(), "is "+family(a)+", and the VIP is "+family(s.VIP), family(s.VIP)+" addresses")
		}
		if seen[a] {
			return NewFieldError(FieldSecondary, a.String(), "is given twice", "each address once, and not the VIP")
		}
		seen[a] = true
	}
	return nil
}
