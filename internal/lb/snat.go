package lb

import (
	"net/netip"
	"slices"
	"strconv"
)

// validateMode checks the mode's requirements on the rest of the service.
func (s Service) validateMode() error {
	host := s.Mode == ModeHostOneArm
	switch {
	case host && !s.VIP.IsUnspecified():
		return NewFieldError(FieldVIP, s.VIP.String(), "is one address, and mode "+s.Mode.String()+" is of every local address", "0.0.0.0 or ::")
	case !host && s.VIP.IsUnspecified() && !s.egressByRules():
		return NewFieldError(FieldVIP, s.VIP.String(), "is every local address, which only mode "+ModeHostOneArm.String()+" has, and mode "+
			ModeDefault.String()+" with egress", "a unicast address that can be routed")
	}
	if err := s.validateEgress(); err != nil {
		return err
	}
	return s.validateSNAT()
}

// egressByRules reports whether the service is the contract's list of endpoints whose outward
// connections get their source from firewall rules: it has no address of its own that could be the
// source.
func (s Service) egressByRules() bool {
	return s.Egress && s.Mode == ModeDefault && s.VIP.IsUnspecified()
}

// GivesSource reports whether connections that its endpoints open outwards leave with an address of
// the service.
func (s Service) GivesSource() bool { return s.Egress && !(s.egressByRules() && len(s.SNAT) == 0) }

func (s Service) validateEgress() error {
	switch {
	case !s.GivesSource():
		return nil
	case !s.Protocol.hasPorts():
		return NewFieldError(FieldEgress, "true", "gives out source ports, and "+s.Protocol.String()+" has none", "false")
	}
	for _, e := range s.Endpoints {
		same := func(a netip.Addr) bool { return a.Is4() == e.Addr.Is4() }
		if !slices.ContainsFunc(s.SNAT, same) && (s.VIP.IsUnspecified() || !same(s.VIP)) {
			return NewFieldError(FieldEgress, "true", "has no address for endpoint "+e.Addr.String()+", which is "+family(e.Addr),
				"false, or an address of that IP version in "+FieldSNAT)
		}
	}
	return nil
}

func (s Service) validateSNAT() error {
	if len(s.SNAT) == 0 {
		return nil
	}
	first := s.SNAT[0].String()
	if !s.Mode.TranslatesSource() && !s.Egress {
		return NewFieldError(FieldSNAT, first, "is given, and mode "+s.Mode.String()+" keeps the source", "none, or mode onearm, fullnat or hostonearm, or egress")
	}
	if n := len(s.SNAT); n > MaxSNAT {
		return NewFieldError(FieldSNAT, strconv.Itoa(n), "is too many", "up to "+strconv.Itoa(MaxSNAT)+" addresses")
	}
	seen := make(map[netip.Addr]bool, len(s.SNAT))
	for _, a := range s.SNAT {
		if err := addrUse(FieldSNAT, a); err != nil {
			return err
		}
		if !slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return e.Addr.Is4() == a.Is4() }) {
			return NewFieldError(FieldSNAT, a.String(), "is "+family(a)+", and no endpoint is", "addresses of the endpoints' IP version")
		}
		if seen[a] {
			return NewFieldError(FieldSNAT, a.String(), "is given twice", "each address once")
		}
		seen[a] = true
	}
	return nil
}
