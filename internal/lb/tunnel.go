package lb

// Tunnel is the outer header that packets of a service in mode dsr get, so that they reach
// endpoints behind routers and of the other IP version.
type Tunnel uint8

// The tunnels.
const (
	TunnelNone Tunnel = iota
	TunnelIPIP
	TunnelGUE
)

func tunnels() []choice[Tunnel] {
	return []choice[Tunnel]{
		{value: TunnelNone, word: "none", help: "no tunnel: sent to the endpoint's MAC address"},
		{value: TunnelIPIP, word: "ipip", help: "an outer IPv4 or IPv6 header, following the endpoint's address"},
		{value: TunnelGUE, word: "gue", help: "an outer IP header and a UDP header to port 6080"},
	}
}

// String returns the word of flags, JSON and text.
func (t Tunnel) String() string { return wordOf("tunnel", t, tunnels()) }

func (s Service) validateTunnel() error {
	if err := wordError(FieldTunnel, s.Tunnel, tunnels()); err != nil {
		return err
	}
	if s.Tunnel != TunnelNone && s.Mode != ModeDSR {
		return NewFieldError(FieldTunnel, s.Tunnel.String(), "is given, and mode is "+s.Mode.String(), "none, or mode dsr")
	}
	return nil
}
