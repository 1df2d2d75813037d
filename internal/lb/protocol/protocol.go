// Package protocol defines the properties of IP protocols that services need, a file for each.
package protocol

import "strconv"

// Protocol is an IP protocol number (IANA).
type Protocol uint8

// The protocols of the existing loxilb.
const (
	ICMP Protocol = 1
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132

	// ICMPv6 is the protocol of IPv6 packets of ICMP services; services themselves have
	// protocol ICMP.
	ICMPv6 Protocol = 58
)

// All returns the protocols that a service may have, supported or not.
func All() []Protocol { return []Protocol{TCP, UDP, SCTP, ICMP} }

// Traits are the properties of a protocol.
type Traits struct {
	Word string
	Help string // example of its use, unless obvious
	// Instead is the alternative to a protocol of the existing loxilb that this build does not
	// support; "": supported.
	Instead string
	// HasPorts: services, endpoints and packets have ports.
	HasPorts bool
	// HasHandshake: endpoints answer the first packet of a connection, and connections have an
	// end. Packets of other protocols belong to flows, which only fall silent.
	HasHandshake bool
	// HasSockets: sockets of this machine that connect to a service can be redirected to its
	// endpoints.
	HasSockets bool
	// Probe is the default probe of a service.
	Probe string
	// States are the existing loxilb's words for states of connections, and State returns one
	// of them.
	States []string
	State  func(Events) string
}

// Events are the events that a connection has seen, of both directions.
type Events struct {
	Replied, Assured, Reset bool
	FinClient, FinEndpoint  bool
	FinsAcked               bool // both FINs were acknowledged
	Established             bool // SCTP: the endpoint sent COOKIE ACK
}

// Traits returns the protocol's properties; zero for a protocol that services cannot have.
func (p Protocol) Traits() Traits {
	switch p {
	case TCP:
		return tcp()
	case UDP:
		return udp()
	case SCTP:
		return sctp()
	case ICMP, ICMPv6:
		return icmp()
	}
	return Traits{}
}

// String returns the existing loxilb's word: tcp, udp, sctp or icmp.
func (p Protocol) String() string {
	if p == ICMPv6 {
		return "icmp6"
	}
	if word := p.Traits().Word; word != "" {
		return word
	}
	return "protocol(" + strconv.Itoa(int(p)) + ")"
}

// Supported reports whether this build balances the protocol.
func (p Protocol) Supported() bool {
	t := p.Traits()
	return t.Word != "" && t.Instead == ""
}

// HasPorts reports whether services and packets of this protocol have ports.
func (p Protocol) HasPorts() bool { return p.Traits().HasPorts }

// HasHandshake reports whether connections begin with a handshake and have an end.
func (p Protocol) HasHandshake() bool { return p.Traits().HasHandshake }

// HasSockets reports whether sockets of this machine can be redirected to endpoints.
func (p Protocol) HasSockets() bool { return p.Traits().HasSockets }

// State returns the existing loxilb's word for the state of a connection, or "" if the protocol has
// none.
func (p Protocol) State(e Events) string {
	if state := p.Traits().State; state != nil {
		return state(e)
	}
	return ""
}
