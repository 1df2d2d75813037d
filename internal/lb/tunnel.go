package lb

import "fmt"

// Tunnel is the outer header that packets of a service in mode dsr get, so that they reach endpoints behind routers and
// of the other IP version.
type Tunnel uint8

// The tunnels.
const (
	TunnelNone Tunnel = iota // the endpoint is reached by its MAC address
	TunnelIPIP               // an IPv4 or IPv6 header, as the endpoint's address is
	TunnelGUE                // ... and UDP to port 6080 behind it
)

func tunnels() []Tunnel { return []Tunnel{TunnelNone, TunnelIPIP, TunnelGUE} }

// String is the word of flags, JSON and text.
func (t Tunnel) String() string {
	switch t {
	case TunnelNone:
		return "none"
	case TunnelIPIP:
		return "ipip"
	case TunnelGUE:
		return "gue"
	}
	return fmt.Sprintf("tunnel(%d)", uint8(t))
}

// ParseTunnel takes the word; "" is none.
func ParseTunnel(s string) (Tunnel, error) {
	if s == "" {
		return TunnelNone, nil
	}
	for _, t := range tunnels() {
		if s == t.String() {
			return t, nil
		}
	}
	return 0, NewFieldError(FieldTunnel, s, "is not known", list(words(tunnels())))
}

func (s Service) validateTunnel() error {
	if err := wordError(FieldTunnel, s.Tunnel, tunnels(), tunnels()); err != nil {
		return err
	}
	if s.Tunnel != TunnelNone && s.Mode != ModeDSR {
		return NewFieldError(FieldTunnel, s.Tunnel.String(), "is given, and mode is "+s.Mode.String(), "none, or mode dsr")
	}
	return nil
}
