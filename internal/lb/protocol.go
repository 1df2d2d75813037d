package lb

import "fmt"

// Protocol is an IP protocol number (IANA).
type Protocol uint8

// The protocols of the contract.
const (
	ICMP Protocol = 1
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132

	// ICMPv6 is what packets of ICMP services are with IPv6; services themselves are of ICMP.
	ICMPv6 Protocol = 58
)

func protocols() []Protocol          { return []Protocol{TCP, UDP, SCTP, ICMP} }
func availableProtocols() []Protocol { return []Protocol{TCP, UDP, ICMP} }

// String is the word of the contract: tcp, udp, sctp or icmp.
func (p Protocol) String() string {
	switch p {
	case ICMP:
		return "icmp"
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case ICMPv6:
		return "icmp6"
	case SCTP:
		return "sctp"
	}
	return fmt.Sprintf("protocol(%d)", uint8(p))
}

// ParseProtocol takes the word or the IANA number.
func ParseProtocol(s string) (Protocol, error) { return parseWord(FieldProtocol, s, protocols()) }

// hasPorts tells whether services of this protocol have a port.
func (p Protocol) hasPorts() bool { return p != ICMP }
