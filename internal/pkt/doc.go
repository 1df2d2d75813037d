// Package pkt is the one-line packet language of tests, traces and documentation, and converts it
// to and from bytes.
//
//	tcp 1.1.1.1:4000 > 10.0.0.1:80 S seq 1
//	udp [2001:db8::1]:53 > [2001:db8::10]:53 len 64
//	icmp 192.0.2.1 > 10.0.0.1 unreach frag-needed mtu 1400 / tcp 10.0.0.1:80 > 1.1.1.1:4000 A
//	ip 1.1.1.1 > 10.0.0.1 proto 47 len 20
//	eth 0x88cc len 46
//	raw 0200000000020200000000010800
//
// A line is a protocol, two addresses (with ports if the protocol has them), values specific to the
// protocol (TCP flags, the name of an ICMP message), fields as `name value` in any order and, after
// ` / `, the packet that an ICMP error quotes or a tunnel carries. The table in field.go lists the
// fields.
//
// A field that is not stated has its default when the packet is built, and is ignored when the line
// is a pattern. Derived fields (checksums, lengths, versions) are stated only to make or to expect
// a wrong value, so a pattern that does not state them requires the right ones.
//
// Two fields describe the packet in the kernel, not its bytes: `gso 1448`, a packet that is many
// segments of that size, and `head 14`, the number of its bytes that are contiguous in memory.
//
// A port or an address may be `*` (anything). `10.1.0.1:* as P` gives the port a name when a
// pattern matches; later lines write `10.1.0.1:P`. `seq * as N` and `ack * as N` do the same for
// numbers of TCP.
package pkt
