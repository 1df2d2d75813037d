package differential

import (
	"slices"
	"strings"

	"loxilb/internal/pkt"
)

// difference is an intended difference between loxilb and the kernel.
type difference struct {
	name string
	what string // the packet, the kernel's behavior, and loxilb's
	why  string // why loxilb's behavior is right
	is   func(*comparedStep) bool
	ends bool // the balancers have different state afterwards, so the test ignores the rest of the sequence
}

// differences returns all intended differences. Each must occur in the sequences, so the test
// detects outdated entries.
func differences() []difference {
	return slices.Concat(segmentDifferences(), endDifferences(), choiceDifferences(), icmpDifferences(), packetDifferences())
}

// segmentDifferences are about segments that do not fit their connection.
func segmentDifferences() []difference {
	return []difference{
		{
			name: "odd-flags",
			what: "A segment with flags that no TCP sends (FIN without ACK, SYN and FIN, none). conntrack calls it invalid: " +
				"it leaves untranslated, or the kernel resets the sender. Ours translates it.",
			why: "The receiver handles it (RFC 9293 section 3.10.7). RFC 3360 calls a RST from a middlebox harmful, and an " +
				"untranslated segment shows an unknown address.",
			is: func(h *comparedStep) bool { return h.invalidSegment() && !validFlags(h.packet) && !h.forgotten() },
		},
		{
			name: "out-of-state",
			what: "An ACK or FIN before the endpoint's SYN-ACK, a SYN-ACK of the client, a SYN of the endpoint. conntrack " +
				"calls it invalid. Ours translates it without a change of state.",
			why: "Packets overtake each other, and both sides may open at once (RFC 9293 section 3.5, RFC 5382 REQ-2): the " +
				"receiver judges (RFC 9293 section 3.10.7.4).",
			is: func(h *comparedStep) bool { return h.invalidSegment() && h.outOfState() && !h.forgotten() },
		},
		{
			name: "forgotten",
			what: "Packets after a RST that was the endpoint's first segment, up to the client's next SYN. conntrack " +
				"removes the connection with any RST. Ours keeps it closed for ten seconds (or open, if it does not " +
				"believe the RST) and translates.",
			why: "Retransmissions and ICMP errors still arrive. Without the entry they would be answered by the load " +
				"balancer or leave with the wrong address.",
			is: func(h *comparedStep) bool {
				return h.forgotten() && h.translated() && !h.opens() && !h.kernelTranslated()
			},
		},
		{
			name: "reversed",
			what: "A SYN of the endpoint from the service's port after the connection is closed. conntrack starts an " +
				"untranslated connection. Ours translates it like any segment of a closed connection.",
			why: "Such a SYN is late or forged; from the VIP, the client resets it (RFC 9293 section 3.10.7.1). " +
				"Untranslated, it would come from an unknown address.",
			ends: true,
			is: func(h *comparedStep) bool {
				return h.server && h.tcp() && kind(h.packet) == pkt.FlagSYN && !h.kernel.invalid && (h.translated() || h.expired())
			},
		},
	}
}

// endDifferences are about the end of a connection: whether a SYN opens a new one, or belongs to
// the old one.
func endDifferences() []difference {
	return []difference{
		{
			name: "reset-unbelieved",
			what: "A SYN after a RST that its receiver would not believe, or after which its sender continued (or the next " +
				"connection, if that SYN goes to the same endpoint). Before the endpoint answers, conntrack believes any " +
				"RST and opens a connection to the next endpoint. Ours needs a credible number, and reverts the RST if " +
				"its sender continues; the SYN goes to the connection's endpoint.",
			why: "Otherwise guessed ports would end connections (RFC 5961 section 3.2, RFC 9293 section 3.10.7.3 for SYN-" +
				"SENT). Whoever has sent a RST stops sending (RFC 9293 section 3.10.7.1).",
			ends: true,
			is: func(h *comparedStep) bool {
				inUse := h.ours.reason() == "tuple-in-use" || h.otherEndpoint()
				return h.opens() && !h.otherPort() && (h.opensAgain(kernelSide) && h.hadFlag(pkt.FlagRST) ||
					inUse && h.clientHadFlag(pkt.FlagRST) || h.otherEndpoint() && h.reopened())
			},
		},
		{
			name: "fin-unacknowledged",
			what: "A SYN after FINs of both sides, not both acknowledged. Without windows, conntrack takes any ACK after a " +
				"FIN as its acknowledgement. Ours compares numbers.",
			why: "An unacknowledged FIN is repeated (RFC 9293 section 3.10.7.4), so the connection lives: its endpoint " +
				"answers a SYN with a challenge ACK (RFC 5961 section 4).",
			ends: true,
			is: func(h *comparedStep) bool {
				return h.opensAgain(kernelSide) && !h.hadFlag(pkt.FlagRST) && h.hadFlag(pkt.FlagFIN)
			},
		},
		{
			name: "reopened-after-reset",
			what: "A SYN after a credible RST and segments with nothing new from its sender. conntrack passes it in the old " +
				"connection. Ours opens a connection.",
			why: "A valid RST ends the connection (RFC 9293 section 3.10.7.4), so the SYN is a new one, for the next " +
				"endpoint.",
			ends: true,
			is:   func(h *comparedStep) bool { return h.opensAgain(loxilbSide) && h.hadFlag(pkt.FlagRST) },
		},
	}
}

// choiceDifferences are about endpoints and source ports.
func choiceDifferences() []difference {
	return []difference{
		{
			name: "turn-kept",
			what: "A connection after a packet that failed to open one by its TTL or source. nftables has counted that " +
				"packet and skips an endpoint. Ours counts connections.",
			why:  "Failed packets must not unbalance round robin.",
			ends: true,
			is: func(h *comparedStep) bool {
				return h.otherEndpoint() && !h.otherPort() && slices.ContainsFunc(h.past, func(g *comparedStep) bool {
					return !g.server && g.flow.vip == h.flow.vip && (g.expired() || g.ours.reason() == "martian-source")
				})
			},
		},
		{
			name: "tuple-in-use",
			what: "Mode default: a client reuses address and port of its connection through another VIP to the same " +
				"endpoint. The kernel changes the source port. Ours goes to another endpoint, and changes the port if " +
				"there is none; a closed earlier connection is replaced, and its late segments get a RST.",
			why:  "In mode default endpoints see clients' addresses, and ports where possible.",
			ends: true,
			is: func(h *comparedStep) bool {
				inUse := h.ours.reason() == "tuple-in-use"
				return h.otherPort() && (inUse || h.otherEndpoint()) || (inUse || h.refused()) && h.kernelTranslated() && h.replaced()
			},
		},
		{
			name: "unsolicited",
			what: "Mode default: a connection from a client address and port to which an endpoint has sent something " +
				"unasked. conntrack has a connection for that, and changes the source port. Ours does not.",
			why: "Packets of no service leave no state: otherwise an endpoint, or a forger, could fill the table and " +
				"change what endpoints see.",
			ends: true,
			is: func(h *comparedStep) bool {
				return h.otherPort() && h.ours.reason() == "" && !h.otherEndpoint() && slices.ContainsFunc(h.past, func(g *comparedStep) bool {
					return g.server && g.flow.client == h.flow.client && !g.translated()
				})
			},
		},
	}
}

// icmpDifferences are about received and sent ICMP errors.
func icmpDifferences() []difference {
	return []difference{
		{
			name: "time-exceeded-source",
			what: "TTL or hop limit expires. The kernel's time exceeded comes from the VIP, ours from the load balancer's " +
				"address towards the receiver.",
			why: "RFC 1812 section 4.3.2.4, RFC 4443 section 2.2: an address of the outgoing interface. traceroute should " +
				"show the hop.",
			is: func(h *comparedStep) bool {
				return h.expired() && len(h.cuts) == 0 && h.bothAnswer() && isError(h.kernel.left[0].packet)
			},
		},
		{
			name: "time-exceeded-refused",
			what: "A segment to a VIP, of no connection, whose TTL expires. The kernel delivers it locally and resets. Ours " +
				"sends time exceeded.",
			why: "A VIP is not the destination, and TTL comes first (RFC 1812 section 5.3.1): a TCP traceroute sees the " +
				"hop.",
			is: func(h *comparedStep) bool {
				silent := len(h.kernel.left) == 0 && h.kernel.invalid // it was a RST
				return h.expired() && h.tcp() && (silent || h.bothAnswer() && h.kernel.left[0].packet.Proto == pkt.TCP)
			},
		},
		{
			name: "time-exceeded-fragment",
			what: "The same in fragments. The kernel reassembles and quotes the whole. Ours quotes the first fragment.",
			why: "The undeliverable packet is the fragment (RFC 792); only the first one is reported (RFC 1122 section " +
				"3.2.2).",
			is: func(h *comparedStep) bool { return h.expired() && len(h.cuts) > 0 && h.ours.leftOnly(h.server) },
		},
		{
			name: "icmp-checksum",
			what: "An ICMP error about a connection, with a wrong checksum. The kernel drops it. Ours translates it, " +
				"equally wrong.",
			why: "RFC 5508 REQ-3 wants a drop, which the receiver does. Reading up to 64 KiB here is not worth it, and " +
				"damage never becomes valid.",
			is: func(h *comparedStep) bool {
				return isError(h.packet) && h.packet.Has(pkt.Sum) && len(h.kernel.left) == 0 && h.ours.leftOnly(!h.server)
			},
		},
		{
			name: "quoted-checksum",
			what: "An ICMP error that quotes 18 or 19 bytes of TCP: the checksum, but not the whole header. The kernel " +
				"translates only the quoted ports. Ours translates both.",
			why: "RFC 5508 REQ-4: restore the quoted packet as far as it is there.",
			is: func(h *comparedStep) bool {
				n := h.quotedBytes()
				return h.flow.proto == pkt.TCP && (n == 18 || n == 19) && h.translated() && h.kernelTranslated()
			},
		},
		{
			name: "short-quote",
			what: "An ICMP error with less than 8 quoted bytes after the IP header. The kernel drops it if it is about a " +
				"connection. Ours passes it to the kernel as a packet of no connection.",
			why: "RFC 792 promises 8 bytes; fewer cannot be looked up.",
			is: func(h *comparedStep) bool {
				n := h.quotedBytes()
				return n >= 0 && n < 8
			},
		},
	}
}

// packetDifferences are about unusual or invalid packets.
func packetDifferences() []difference {
	return []difference{
		{
			name: "fragments-incomplete",
			what: "A datagram with a missing fragment. The kernel holds all of it. Ours forwards what arrives.",
			why: "Reassembly lets strangers fill memory (RFC 4787 REQ-14). The receiver waits anyway (RFC 791 section " +
				"3.2).",
			ends: true,
			is: func(h *comparedStep) bool {
				return len(h.cuts) > 0 && len(h.order) < len(h.cuts) && len(h.kernel.left) == 0
			},
		},
		{
			name: "fragments-disordered",
			what: "A datagram whose first fragment is not the first to arrive. The kernel waits for all. Ours forwards the " +
				"first and later ones; earlier ones are dropped (from a client) or of no connection.",
			why: "Only the first fragment has ports, and senders send it first; holding others lets strangers fill memory. " +
				"RFC 4787 REQ-14 asks for more.",
			is: func(h *comparedStep) bool { return len(h.cuts) > 0 && !slices.IsSorted(h.order) && h.order[0] != 0 },
		},
		{
			name: "fragments-held",
			what: "A datagram whose later fragments are reordered. The kernel sorts them. Ours does not.",
			why:  "IP promises no order (RFC 791 section 3.2).",
			is:   func(h *comparedStep) bool { return len(h.cuts) > 0 && !slices.IsSorted(h.order) && h.order[0] == 0 },
		},
		{
			name: "malformed",
			what: "A TCP or UDP header that contradicts the packet's length. conntrack calls it invalid: it leaves " +
				"untranslated. Ours drops it.",
			why: "It is unreadable (RFC 9293 section 3.1, RFC 768), and must not leave with an endpoint's address.",
			is:  func(h *comparedStep) bool { return h.ours.reason() == "malformed" && len(h.ours.left) == 0 },
		},
		{
			name: "udp-zero-checksum",
			what: "UDP over IPv6 without a checksum. The kernel translates it. Ours drops it.",
			why:  "RFC 8200 section 8.1: receivers must discard it, as nothing protects its addresses.",
			ends: true,
			is:   func(h *comparedStep) bool { return h.ours.reason() == "udp-zero-checksum" && len(h.ours.left) == 0 },
		},
		{
			name: "martian-ipv6",
			what: "IPv6 from the VIP itself. The kernel, which knows such sources for IPv4 only, translates it. Ours drops " +
				"it.",
			why:  "No answer can reach that source (RFC 2827).",
			ends: true,
			is: func(h *comparedStep) bool {
				return h.v6() && h.ours.reason() == "martian-source" && len(h.ours.left) == 0
			},
		},
		{
			name: "record-route",
			what: "An IPv4 record route option. The kernel adds its address. Ours forwards it unchanged.",
			why: "RFC 1812 section 5.3.13.4 allows that; most networks drop such packets (RFC 7126 section 4.6), and " +
				"writing options would slow the fast path.",
			is: func(h *comparedStep) bool {
				return strings.HasPrefix(h.packet.Value(pkt.IPOptions).Text, "\x07") && len(h.ours.left) == 1 && len(h.kernel.left) == 1
			},
		},
		{
			name: "refused-checksum",
			what: "A segment to a VIP, of no connection, with a wrong checksum. The kernel drops it. Ours resets.",
			why:  "Devices drop such segments earlier. The RST is no larger, and goes to the source in a valid IP header.",
			is: func(h *comparedStep) bool {
				return h.tcp() && h.packet.Has(pkt.Sum) && h.refused() && len(h.kernel.left) == 0
			},
		},
		{
			name: "reset-tos",
			what: "A segment to a VIP, of no connection, with a ToS. The kernel's RST copies it. Ours has 0.",
			why:  "RFC 9293 leaves it open, and ToS is the endpoint's choice.",
			is: func(h *comparedStep) bool {
				return h.tcp() && h.packet.Num(pkt.TOS) != 0 && h.refused() && h.bothAnswer() && h.kernel.left[0].packet.Num(pkt.Flags)&pkt.FlagRST != 0
			},
		},
	}
}
