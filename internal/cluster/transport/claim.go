package transport

import "crypto/tls"

// A node that refuses another one because of its key reads no Hello of it. So nodes also report by
// the application protocol of TLS (ALPN) whether they announce their VIPs. Nodes of older versions
// offer and select none.
const (
	protocolServing = "loxilb-serving"
	protocolJoining = "loxilb-joining"
)

// withClaim returns a configuration with which a server reports whether its node announces VIPs.
func withClaim(c *tls.Config, own *Hello) *tls.Config {
	c = c.Clone()
	c.NextProtos = []string{protocolServing}
	if own.Joining {
		c.NextProtos = []string{protocolJoining}
	}
	return c
}

// withClaimReader returns a configuration with which a client learns the server's claim, even if it
// then rejects its certificate. selected receives the protocol that the server has selected.
func withClaimReader(c *tls.Config, selected *string) *tls.Config {
	c = c.Clone()
	c.NextProtos = []string{protocolServing, protocolJoining}
	verify := c.VerifyConnection
	c.VerifyConnection = func(s tls.ConnectionState) error {
		*selected = s.NegotiatedProtocol
		return verify(s)
	}
	return c
}
