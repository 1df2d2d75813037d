package lb

import "slices"

// proxyModes returns the modes in which every packet of a connection passes this machine twice, and
// the endpoint's TCP is not the client's.
func proxyModes() []Mode { return []Mode{ModeDefault, ModeOneArm, ModeFullNAT} }

// validateProxyProtocol checks that the data path can put a header in front of the client's data.
func (s Service) validateProxyProtocol() error {
	switch {
	case !s.ProxyProtocol:
		return nil
	case s.Protocol != TCP:
		return NewFieldError(FieldProxyProtocol, "true", "needs a stream of data, and "+s.Protocol.String()+" has none", "false, or protocol tcp")
	case !slices.Contains(proxyModes(), s.Mode):
		return NewFieldError(FieldProxyProtocol, "true", "is set, but mode is "+s.Mode.String(), "false, or mode default, onearm or fullnat")
	}
	return nil
}
