package differential

import (
	"slices"
	"strings"

	"loxilb/internal/pkt"
)

// difference is a way in which ours is meant to differ from the kernel: a row of docs/differential.md.
type difference struct {
	name string
	what string // the packet, what the kernel does with it, and what ours does
	why  string // ... is right
	is   func(*happening) bool
	ends bool // the two remember different things from then on, so the sequence is compared no further
}

// differences are all that are intended. Each must occur in the sequences, so that none stays behind when the reason
// for it is gone.
func differences() []difference {
	return slices.Concat(segmentDifferences(), endDifferences(), choiceDifferences(), icmpDifferences(), packetDifferences())
}

// segmentDifferences are about segments that do not fit their connection.
func segmentDifferences() []difference {
	return []difference{
		{
			name: "odd-flags",
			what: "A segment of a connection with a combination of flags that no TCP sends (FIN without ACK, SYN and FIN, none at all). " +
				"conntrack calls it invalid: it goes on untranslated, or the kernel itself resets the sender. Ours translates it.",
			why: "The receiver knows what to do with it (RFC 9293 section 3.10.7). A RST in its name by somebody on the way is what RFC 3360 " +
				"calls harmful, and an untranslated segment shows the client an address that it does not know.",
			is: func(h *happening) bool { return h.invalidSegment() && !validFlags(h.packet) && !h.forgotten() },
		},
		{
			name: "out-of-state",
			what: "An ACK or a FIN before the endpoint's SYN-ACK, a SYN-ACK of the client, a SYN of the endpoint. " +
				"conntrack calls it invalid, as above. Ours translates it and lets it change nothing that it must not.",
			why: "Packets overtake each other, and both sides may open at once (RFC 9293 section 3.5, RFC 5382 REQ-2): the receiver tells " +
				"an early segment from a wrong one, and answers with an ACK or a RST of its own (RFC 9293 section 3.10.7.4).",
			is: func(h *happening) bool { return h.invalidSegment() && h.outOfState() && !h.forgotten() },
		},
		{
			name: "forgotten",
			what: "Anything after a RST that came before any other segment of the endpoint, up to the client's next SYN. conntrack removes the connection " +
				"with that RST, whatever its numbers. Ours keeps it closed for ten seconds (if it believes the RST, else open), and translates.",
			why: "What was under way when the connection was refused still arrives: the ICMP error after the RST, the retransmission. Removed at once, " +
				"it would be answered by the load balancer or leave with the wrong address.",
			is: func(h *happening) bool {
				return h.forgotten() && h.translated() && !h.opens() && !h.kernelTranslated()
			},
		},
		{
			name: "reversed",
			what: "A SYN of the endpoint from the service's port to the client, after the connection is closed. conntrack removes the " +
				"connection and begins another, of the endpoint, which is not translated. Ours translates it, as any segment of a closed connection.",
			why: "The port is the one that the endpoint listens at. A SYN from there is late or forged, and the client that gets it from the VIP " +
				"resets it (RFC 9293 section 3.10.7.1). Untranslated, it would come from an address that the client has never spoken to.",
			ends: true,
			is: func(h *happening) bool {
				return h.server && h.tcp() && kind(h.packet) == pkt.FlagSYN && !h.kernel.invalid && (h.translated() || h.expired())
			},
		},
	}
}

// endDifferences are about when a connection is over: a SYN opens another one, or is of the old one.
func endDifferences() []difference {
	return []difference{
		{
			name: "reset-unbelieved",
			what: "A SYN after a RST that its receiver would not have believed, or after which its sender went on (or the next connection, if that SYN happens to go to the same endpoint). conntrack, before the endpoint has answered, takes any RST for the end, and opens a " +
				"connection, in turn to another endpoint. Ours believes a RST only with a number that the receiver may believe, and takes it back when its sender sends or acknowledges more; the SYN goes to the endpoint that has the connection.",
			why:  "RFC 5961 section 3.2, and RFC 9293 section 3.10.7.3 for SYN-SENT: else whoever guesses the ports ends connections. Whoever has sent a RST goes on with nothing (RFC 9293 section 3.10.7.1).",
			ends: true,
			is: func(h *happening) bool {
				inUse := h.ours.reason() == "tuple-in-use" || h.otherEndpoint()
				return h.opens() && !h.otherPort() && (h.anew(kernelSide) && h.had(pkt.FlagRST) ||
					inUse && h.clientHad(pkt.FlagRST) || h.otherEndpoint() && h.reopened())
			},
		},
		{
			name: "fin-unacknowledged",
			what: "A SYN after FINs of both sides that were not both acknowledged. conntrack, with its windows set aside, takes any ACK after a FIN for its " +
				"acknowledgement. Ours compares the number.",
			why: "A FIN that is not acknowledged is sent again (RFC 9293 section 3.10.7.4), and what follows is still of the old connection: " +
				"the endpoint that has it answers a SYN with a challenge ACK (RFC 5961 section 4).",
			ends: true,
			is:   func(h *happening) bool { return h.anew(kernelSide) && !h.had(pkt.FlagRST) && h.had(pkt.FlagFIN) },
		},
		{
			name: "reopened-after-reset",
			what: "A SYN after a RST that its receiver believes, and after other segments since, which bring nothing new of the RST's sender. conntrack lets the SYN through in the old connection, to the old endpoint. " +
				"Ours opens a connection.",
			why: "After a valid RST there is no connection left (RFC 9293 section 3.10.7.4), whatever is still under way: the SYN is a new one, " +
				"and it is the next endpoint's turn.",
			ends: true,
			is:   func(h *happening) bool { return h.anew(ourSide) && h.had(pkt.FlagRST) },
		},
	}
}

// choiceDifferences are about endpoints and source ports.
func choiceDifferences() []difference {
	return []difference{
		{
			name: "turn-kept",
			what: "A connection after a packet that would have opened one but for its TTL or its source. nftables has counted that packet, and the next endpoint has been passed over. " +
				"Ours counts connections that are made.",
			why:  "Round robin is over connections: packets that go nowhere must not unbalance it.",
			ends: true,
			is: func(h *happening) bool {
				return h.otherEndpoint() && !h.otherPort() && slices.ContainsFunc(h.past, func(g *happening) bool {
					return !g.server && g.flow.vip == h.flow.vip && (g.expired() || g.ours.reason() == "martian-source")
				})
			},
		},
		{
			name: "tuple-in-use",
			what: "Mode default: a client with the address and port of a connection that it has through another VIP with the same endpoint. The kernel changes the source port. " +
				"Ours goes to another endpoint, and changes the port when there is none; if the earlier connection is closed, it makes room, and what is left of it is answered with a RST.",
			why:  "Mode default promises that endpoints see clients' addresses, and their ports where that is possible.",
			ends: true,
			is: func(h *happening) bool {
				inUse := h.ours.reason() == "tuple-in-use"
				return h.otherPort() && (inUse || h.otherEndpoint()) || (inUse || h.refused()) && h.kernelTranslated() && h.replaced()
			},
		},
		{
			name: "unsolicited",
			what: "Mode default: a connection from a client address and port that an endpoint has sent something to, unasked. That made a connection in conntrack, and the kernel changes " +
				"the source port so as to tell the two apart. Ours leaves it.",
			why: "What is of no service is not ours to remember: an endpoint, or one who takes its address, could else fill the table, and change " +
				"what endpoints see of clients.",
			ends: true,
			is: func(h *happening) bool {
				return h.otherPort() && h.ours.reason() == "" && !h.otherEndpoint() && slices.ContainsFunc(h.past, func(g *happening) bool {
					return g.server && g.flow.client == h.flow.client && !g.translated()
				})
			},
		},
	}
}

// icmpDifferences are about ICMP errors, of others and of its own.
func icmpDifferences() []difference {
	return []difference{
		{
			name: "time-exceeded-source",
			what: "TTL or hop limit at its end. The kernel's time exceeded comes from the VIP, by its own translation. Ours comes from the load balancer's address towards the receiver.",
			why:  "RFC 1812 section 4.3.2.4 (and RFC 4443 section 2.2): an address of the interface that it leaves through. traceroute is to show the hop.",
			is: func(h *happening) bool {
				return h.expired() && len(h.cuts) == 0 && h.bothAnswer() && isError(h.kernel.left[0].packet)
			},
		},
		{
			name: "time-exceeded-refused",
			what: "A segment to a VIP whose TTL is at its end and that is of no connection. The kernel has it delivered to the machine itself, and resets. Ours: time exceeded.",
			why: "A VIP is a way to endpoints, not the end of it: TTL is a hop's business and comes first (RFC 1812 section 5.3.1). Whoever " +
				"traces with TCP sees the hop, whatever the flags.",
			is: func(h *happening) bool {
				silent := len(h.kernel.left) == 0 && h.kernel.invalid // it was a RST
				return h.expired() && h.tcp() && (silent || h.bothAnswer() && h.kernel.left[0].packet.Proto == pkt.TCP)
			},
		},
		{
			name: "time-exceeded-fragment",
			what: "The same in fragments. The kernel puts them together first and quotes the whole. Ours quotes the first fragment.",
			why:  "The packet that could not be delivered is the fragment (RFC 792), and of fragments only the first is told about (RFC 1122 section 3.2.2).",
			is:   func(h *happening) bool { return h.expired() && len(h.cuts) > 0 && h.ours.leftOnly(h.server) },
		},
		{
			name: "icmp-checksum",
			what: "An ICMP error with a wrong checksum about a connection. The kernel drops it. Ours translates it, just as wrong as it was.",
			why: "RFC 5508 REQ-3 would have it dropped. The receiver does that: the sum covers as much as 64 KiB, and to read all of it is not " +
				"worth sparing the receiver a packet. What is damaged never leaves whole.",
			is: func(h *happening) bool {
				return isError(h.packet) && h.packet.Has(pkt.Sum) && len(h.kernel.left) == 0 && h.ours.leftOnly(!h.server)
			},
		},
		{
			name: "quoted-checksum",
			what: "An ICMP error that quotes 18 or 19 bytes of a TCP segment: the checksum, but not all of the header. The kernel translates the quoted ports and leaves the checksum. Ours translates both.",
			why:  "RFC 5508 REQ-4: the quoted packet is put back to what its sender sent, as far as it is there.",
			is: func(h *happening) bool {
				n := h.quotedBytes()
				return h.flow.proto == pkt.TCP && (n == 18 || n == 19) && h.translated() && h.kernelTranslated()
			},
		},
		{
			name: "short-quote",
			what: "An ICMP error that quotes less than 8 bytes behind the IP header. The kernel drops it if it is about a connection. Ours takes it for a packet of no connection, and the kernel has it.",
			why:  "RFC 792 promises 8 bytes. What is not told can't be looked up; it is nobody's, as any error about nothing known.",
			is: func(h *happening) bool {
				n := h.quotedBytes()
				return n >= 0 && n < 8
			},
		},
	}
}

// packetDifferences are about packets that are odd in themselves.
func packetDifferences() []difference {
	return []difference{
		{
			name: "fragments-incomplete",
			what: "A datagram of which a fragment is missing. The kernel waits for it and lets nothing through. Ours lets through what came.",
			why:  "Ours does not put datagrams together: memory that strangers fill is what RFC 4787 REQ-14 warns of. The receiver waits, as it has to (RFC 791 section 3.2).",
			ends: true,
			is: func(h *happening) bool {
				return len(h.cuts) > 0 && len(h.order) < len(h.cuts) && len(h.kernel.left) == 0
			},
		},
		{
			name: "fragments-disordered",
			what: "A datagram whose first fragment is not the first to come. The kernel waits for all. Ours lets through the first and what comes after it; what came before is dropped (from a client) or is of no connection.",
			why:  "Only the first fragment has ports. Senders send it first; to hold others until it comes takes memory that strangers fill. RFC 4787 REQ-14 asks for more than ours does.",
			is:   func(h *happening) bool { return len(h.cuts) > 0 && !slices.IsSorted(h.order) && h.order[0] != 0 },
		},
		{
			name: "fragments-held",
			what: "A datagram whose later fragments come in another order. The kernel sends them in order. Ours, as they come.",
			why:  "Order is nothing that IP promises (RFC 791 section 3.2).",
			is:   func(h *happening) bool { return len(h.cuts) > 0 && !slices.IsSorted(h.order) && h.order[0] == 0 },
		},
		{
			name: "malformed",
			what: "A TCP or UDP header that contradicts the packet's length. conntrack calls it invalid, and it goes on untranslated. Ours drops it.",
			why:  "Nobody can read it (RFC 9293 section 3.1, RFC 768); an endpoint's address must not leave with it.",
			is:   func(h *happening) bool { return h.ours.reason() == "malformed" && len(h.ours.left) == 0 },
		},
		{
			name: "udp-zero-checksum",
			what: "UDP over IPv6 without a checksum. The kernel translates it. Ours drops it.",
			why:  "RFC 8200 section 8.1: receivers must discard it. Translated, nothing would show that its addresses are the right ones.",
			ends: true,
			is:   func(h *happening) bool { return h.ours.reason() == "udp-zero-checksum" && len(h.ours.left) == 0 },
		},
		{
			name: "martian-ipv6",
			what: "IPv6 from the VIP itself. The kernel, which knows such sources for IPv4 only, translates it. Ours drops it.",
			why:  "No answer can reach that source (RFC 2827): the endpoint would answer to the load balancer.",
			ends: true,
			is:   func(h *happening) bool { return h.v6() && h.ours.reason() == "martian-source" && len(h.ours.left) == 0 },
		},
		{
			name: "record-route",
			what: "An IPv4 packet with the record route option. The kernel enters its address. Ours forwards the option as it is.",
			why:  "RFC 1812 section 5.3.13.4 lets a router pass it through unchanged; most of the Internet drops such packets (RFC 7126 section 4.6), and a fast path that writes options is one that can be made slow.",
			is: func(h *happening) bool {
				return strings.HasPrefix(h.packet.Value(pkt.IPOptions).Text, "\x07") && len(h.ours.left) == 1 && len(h.kernel.left) == 1
			},
		},
		{
			name: "refused-checksum",
			what: "A segment to a VIP, of no connection, with a wrong checksum. The kernel drops it. Ours resets, as without.",
			why:  "Devices drop such segments before anybody sees them. A RST that answers one is no larger than it, and goes to the address that the IP header, whose own sum is right, names.",
			is: func(h *happening) bool {
				return h.tcp() && h.packet.Has(pkt.Sum) && h.refused() && len(h.kernel.left) == 0
			},
		},
		{
			name: "reset-tos",
			what: "A segment to a VIP, of no connection, with another ToS than 0. The kernel's RST has the segment's. Ours has 0.",
			why:  "RFC 9293 leaves it open. A RST of ours says nothing for the endpoint, whose choice ToS is.",
			is: func(h *happening) bool {
				return h.tcp() && h.packet.Num(pkt.TOS) != 0 && h.refused() && h.bothAnswer() && h.kernel.left[0].packet.Num(pkt.Flags)&pkt.FlagRST != 0
			},
		},
	}
}
