package lb

// Protocol is an IP protocol number (IANA).
type Protocol uint8

// The protocols of the contract.
const (
	ICMP Protocol = 1
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132

	// ICMPv6 is the protocol of IPv6 packets of ICMP services; services themselves have protocol
	// ICMP.
	ICMPv6 Protocol = 58
)

func protocols() []choice[Protocol] {
	return []choice[Protocol]{
		{value: TCP, word: "tcp"},
		{value: UDP, word: "udp"},
		{value: SCTP, word: "sctp", instead: "IPVS (ipvsadm --sctp-service) balances SCTP"},
		{value: ICMP, word: "icmp", help: "echo requests; there are no ports"},
	}
}

// String returns the word of the contract: tcp, udp, sctp or icmp.
func (p Protocol) String() string {
	if p == ICMPv6 {
		return "icmp6"
	}
	return wordOf("protocol", p, protocols())
}

// ParseProtocol parses the word or the IANA number.
func ParseProtocol(s string) (Protocol, error) {
	return parseWordOrNumber(FieldProtocol, s, protocols())
}

// hasPorts reports whether services of this protocol have a port.
func (p Protocol) hasPorts() bool { return p != ICMP }
