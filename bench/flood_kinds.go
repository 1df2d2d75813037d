package main

import (
	"fmt"
	"net"
	"net/netip"

	"loxilb/internal/pkt"
)

// flood is a kind of unsolicited packets, each with a random address, ports and numbers.
type flood struct {
	name, title string
	large       bool // whether to measure large, fragmented datagrams of other clients
	packets     func(target) []template
}

// target is a flood's destination.
type target struct {
	from, to net.HardwareAddr
	address  netip.AddrPort
	udp      uint16 // port of the UDP service
}

// template is a frame with holes that are filled for each packet.
type template struct {
	line  string // in the language of pkt, with zeros in the holes
	holes []hole
	sums  []checksum
}

// hole is a field of two or four bytes that differs in each frame.
type hole struct {
	at, size  int
	number    int    // index of the random number: both frames of a handshake have the same numbers
	keep, set uint32 // bit masks in network byte order: random bits, and bits that are always 1; keep 0: all are random
}

// checksum is the offset of a checksum, and the holes that it covers.
type checksum struct {
	at     int
	covers []hole
}

// Indexes of the random numbers of a frame.
const (
	numberAddress = iota
	numberAddressLow
	numberPort
	numberSeq
	numberAck
	numberDestinationPort
	numberID
)

func floods() []flood {
	return []flood{
		{name: "syn", title: "SYNs", packets: func(t target) []template { return []template{t.tcp("S", nil)} }},
		{name: "handshake", title: "forged handshakes: SYN, then an ACK with a wrong number,", packets: target.handshake},
		{name: "ack", title: "ACKs of no connection", packets: func(t target) []template { return []template{t.tcp("A", nil)} }},
		{name: "rst", title: "RSTs of no connection", packets: func(t target) []template { return []template{t.tcp("R", nil)} }},
		{name: "udp", title: "datagrams to a UDP service", packets: func(t target) []template { return []template{t.datagram(t.udp)} }},
		{name: "ports", title: "datagrams to random ports", packets: func(t target) []template { return []template{t.datagram(0)} }},
		{name: "fragment", title: "first fragments of datagrams that are never completed", large: true, packets: target.fragment},
		{name: "icmp", title: "ICMP errors about no connection", packets: target.icmpError},
	}
}

// l4 returns where the transport header begins.
func (t target) l4() int {
	if t.v6() {
		return 54
	}
	return 34
}

func (t target) v6() bool { return t.address.Addr().Is6() }

// source returns the holes that make the address at an offset a random one, in 128.0.0.0/2 or
// 2a00::/16, and the placeholder that the template has there.
func (t target) source(at int) (holes []hole, placeholder netip.Addr) {
	if t.v6() {
		return []hole{
			{at: at + 2, size: 4, number: numberAddress},
			{at: at + 12, size: 4, number: numberAddressLow},
		}, netip.MustParseAddr("2a00::")
	}
	return []hole{{at: at, size: 4, number: numberAddress, keep: 0x3fffffff, set: 0x80000000}}, netip.IPv4Unspecified()
}

// packet returns a template with a random source. more are the holes of the transport header; sum
// is the offset of its checksum, 0 if it has none.
func (t target) packet(line string, sum int, more ...hole) template {
	source, _ := t.source(26)
	if t.v6() {
		source, _ = t.source(22)
	}
	out := template{line: line, holes: append(source, more...)}
	if !t.v6() {
		out.sums = append(out.sums, checksum{24, covered(out.holes, 14, 34)})
	}
	if sum > 0 {
		out.sums = append(out.sums, checksum{sum, out.holes})
	}
	return out
}

// covered returns the holes between two places.
func covered(holes []hole, from, to int) (out []hole) {
	for _, h := range holes {
		if h.at >= from && h.at < to {
			out = append(out, h)
		}
	}
	return out
}

func (t target) frameLine(protocol string, source, to netip.AddrPort, rest string) string {
	return fmt.Sprintf("%s %v > %v %s from %v to %v", protocol, source, to, rest, t.from, t.to)
}

// placeholder returns the address and port that the template has in place of a random source.
func (t target) placeholder() netip.AddrPort {
	_, a := t.source(0)
	return netip.AddrPortFrom(a, 0)
}

// port is a hole for a random port from 32768 on.
func port(at int) hole { return hole{at: at, size: 2, number: numberPort, keep: 0x7fff, set: 0x8000} }

// tcp returns a segment; seq is the hole of its sequence number, nil for a random one.
func (t target) tcp(flags string, seq *hole) template {
	l4 := t.l4()
	if seq == nil {
		seq = &hole{size: 4, number: numberSeq}
	}
	seq.at = l4 + 4
	holes := []hole{port(l4), *seq}
	if flags == "A" {
		holes = append(holes, hole{at: l4 + 8, size: 4, number: numberAck})
	}
	pad := ""
	if !t.v6() {
		pad = " pad 6" // to the smallest frame that Ethernet has
	}
	return t.packet(t.frameLine("tcp", t.placeholder(), t.address, flags+" seq 0 ack 0 win 64240"+pad), l4+16, holes...)
}

// handshake follows the SYN by an ACK of the same source with the next sequence number.
func (t target) handshake() []template {
	return []template{
		t.tcp("S", &hole{size: 4, number: numberSeq, keep: 0xffffff00}),
		t.tcp("A", &hole{size: 4, number: numberSeq, keep: 0xffffff00, set: 1}),
	}
}

// datagram returns a datagram to a port; 0: any.
func (t target) datagram(to uint16) template {
	l4 := t.l4()
	holes := []hole{port(l4)}
	if to == 0 {
		holes = append(holes, hole{at: l4 + 2, size: 2, number: numberDestinationPort})
	}
	return t.packet(t.frameLine("udp", t.placeholder(), netip.AddrPortFrom(t.address.Addr(), to), "len 18"), l4+6, holes...)
}

// fragment returns the first fragment of a datagram to the UDP service. Its checksum is never
// verified.
func (t target) fragment() []template {
	to := netip.AddrPortFrom(t.address.Addr(), t.udp)
	if t.v6() {
		const id, l4 = 58, 62
		line := t.frameLine("udp", t.placeholder(), to, "ext frag:0+:0 len 24 udplen 2000")
		return []template{t.packet(line, 0, hole{at: id, size: 4, number: numberID}, port(l4))}
	}
	const id, l4 = 18, 34
	line := t.frameLine("udp", t.placeholder(), to, "len 24 udplen 2000 mf ipid 0")
	return []template{t.packet(line, 0, hole{at: id, size: 2, number: numberID}, port(l4))}
}

// icmpError returns an error whose quoted packet was sent by the service to the error's source.
func (t target) icmpError() []template {
	l4 := t.l4()
	inner := l4 + 8
	protocol, rest, header, destination := "icmp", "unreach host", 20, inner+16
	if t.v6() {
		protocol, rest, header, destination = "icmp6", "unreach address", 40, inner+24
	}
	line := fmt.Sprintf("%s %v > %v %s from %v to %v / tcp %v > %v A seq 0 ack 0", protocol, t.placeholder().Addr(), t.address.Addr(), rest, t.from, t.to,
		t.address, t.placeholder())
	quoted, _ := t.source(destination)
	more := []hole{port(inner + header + 2), {at: inner + header + 4, size: 4, number: numberSeq}}
	out := t.packet(line, l4+2, append(quoted, more...)...)
	if t.v6() {
		return []template{out}
	}
	// Only ports and numbers change the error's checksum: the quoted IP header has its own, so
	// its sum is constant, and the error's address is not covered.
	out.sums = []checksum{{24, covered(out.holes, 14, 34)}, {inner + 10, quoted}, {l4 + 2, more}}
	return []template{out}
}

// frame returns the template's bytes, zeros in its holes.
func (t template) frame() ([]byte, error) {
	p, err := pkt.Parse(t.line)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", t.line, err)
	}
	return p.Build(), nil
}
