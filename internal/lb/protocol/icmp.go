package protocol

func icmp() Traits {
	return Traits{
		Word:   "icmp",
		Help:   "echo requests; there are no ports",
		Probe:  "ping",
		States: []string{"req-sent", "bidir"},
		State: func(e Events) string {
			if e.Replied {
				return "bidir"
			}
			return "req-sent"
		},
	}
}

// ForIPVersion returns the protocol of a service's packets over IPv4 or IPv6: ICMP has a number in
// each.
func (p Protocol) ForIPVersion(ipv6 bool) Protocol {
	if p == ICMP && ipv6 {
		return ICMPv6
	}
	return p
}

// OfService returns the protocol of services for packets of this protocol.
func (p Protocol) OfService() Protocol {
	if p == ICMPv6 {
		return ICMP
	}
	return p
}

// Translated returns the protocol of the same packet in the other IP version.
func (p Protocol) Translated() Protocol {
	switch p {
	case ICMP:
		return ICMPv6
	case ICMPv6:
		return ICMP
	}
	return p
}

// Includes reports whether a service or filter of protocol p applies to packets of protocol q.
func (p Protocol) Includes(q Protocol) bool { return p == q || p == q.OfService() }
