package pkt

// icmpName is the name of an ICMP message: a word for the type, and a word for the code if it
// matters.
type icmpName struct {
	proto      Proto
	name       string
	kind, code uint8
}

func icmpNames() []icmpName {
	return []icmpName{
		{ICMP, "echo-reply", 0, 0},
		{ICMP, "unreach net", 3, 0},
		{ICMP, "unreach host", 3, 1},
		{ICMP, "unreach protocol", 3, 2},
		{ICMP, "unreach port", 3, 3},
		{ICMP, "unreach frag-needed", 3, 4},
		{ICMP, "unreach admin", 3, 13},
		{ICMP, "redirect", 5, 1},
		{ICMP, "echo", 8, 0},
		{ICMP, "time-exceeded", 11, 0},
		{ICMP, "param-problem", 12, 0},
		{ICMP6, "unreach no-route", 1, 0},
		{ICMP6, "unreach admin", 1, 1},
		{ICMP6, "unreach address", 1, 3},
		{ICMP6, "unreach port", 1, 4},
		{ICMP6, "too-big", 2, 0},
		{ICMP6, "time-exceeded", 3, 0},
		{ICMP6, "param-problem", 4, 0},
		{ICMP6, "echo", 128, 0},
		{ICMP6, "echo-reply", 129, 0},
		{ICMP6, "router-solicit", 133, 0},
		{ICMP6, "router-advert", 134, 0},
		{ICMP6, "neighbour-solicit", 135, 0},
		{ICMP6, "neighbour-advert", 136, 0},
		{ICMP6, "redirect", 137, 0},
	}
}

// icmpNamed finds a message by its one or two words.
func icmpNamed(proto Proto, name string) (icmpName, bool) {
	for _, n := range icmpNames() {
		if n.proto == proto && n.name == name {
			return n, true
		}
	}
	return icmpName{}, false
}

// icmpWords returns the words for a type and code, "" when there are none.
func icmpWords(proto Proto, kind, code uint64) string {
	for _, n := range icmpNames() {
		if n.proto == proto && uint64(n.kind) == kind && uint64(n.code) == code {
			return n.name
		}
	}
	return ""
}

// icmpType returns the type of the message: echo when none is stated.
func (p *Packet) icmpType() uint8 {
	switch {
	case p.Has(Type):
		return uint8(p.Num(Type))
	case p.Proto == ICMP6:
		return 128
	}
	return 8
}

// isEcho reports whether the message has an identifier and a sequence number.
func isEcho(proto Proto, kind uint8) bool {
	if proto == ICMP6 {
		return kind == 128 || kind == 129
	}
	return kind == 0 || kind == 8
}

// quotes reports whether the message quotes the head of another packet.
func quotes(proto Proto, kind uint8) bool {
	if proto == ICMP6 {
		return kind < 128
	}
	return kind == 3 || kind == 4 || kind == 5 || kind == 11 || kind == 12
}
