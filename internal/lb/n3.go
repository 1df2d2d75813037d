package lb

import "strconv"

// GTPPort is the UDP port of GTP-U.
const GTPPort = 2152

// TunnelPort returns the source port that packets of a tunnel to a service of algorithm N3 get
// before an endpoint is chosen: 49152 or higher (bpf/gtp/source_port.h).
func TunnelPort(teid uint32) uint16 {
	const first, bits, factor = 0xc000, 14, 0x9e3779b1
	return uint16(first | teid*factor>>(32-bits))
}

// validateN3 checks that packets of a service of algorithm N3 can belong to tunnels.
func (s *Service) validateN3() error {
	const allowed = "another algorithm, or --udp=2152"
	switch word := N3.String(); {
	case s.Algorithm != N3:
		return nil
	case s.Protocol != UDP:
		return NewFieldError(FieldSelect, word, "is for GTP-U over UDP, and the service is of "+s.Protocol.String(), allowed)
	case s.Port != GTPPort || s.PortMax != 0:
		return NewFieldError(FieldSelect, word, "is for GTP-U, and the service's port is "+strconv.Itoa(int(s.Port)), allowed)
	case s.Mode == ModeHostOneArm:
		return NewFieldError(FieldSelect, word, "is for a VIP of its own, and mode is "+s.Mode.String(), "another algorithm, or another mode")
	case s.Helper != HelperNone:
		return NewFieldError(FieldHelper, s.Helper.String(), "is set, but select is "+word, HelperNone.String()+", or another algorithm")
	case s.HasEgressSource():
		return NewFieldError(FieldEgress, "true", "is set, but select is "+word, "false, or another algorithm")
	}
	return nil
}
