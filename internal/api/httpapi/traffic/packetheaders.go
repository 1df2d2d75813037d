package traffic

import "encoding/binary"

const (
	ethernet = 14
	vlan     = 4

	typeIPv4, typeIPv6   = 0x0800, 0x86dd
	typeVLAN, typeVLANAD = 0x8100, 0x88a8

	icmp4, tunnel4, tcp, udp, tunnel6, icmp6 = 1, 4, 6, 17, 41, 58
	vxlanPort, vxlan                         = 4789, 8
)

// headerLength returns the number of bytes of a packet that are headers, including those of
// tunnels, of packets in them, and of packets quoted by ICMP errors. Everything after the headers
// is payload, which is confidential. Packets other than IP have only a link-layer header.
func headerLength(b []byte, layer3 bool) int {
	at := 0
	if !layer3 {
		if at = link(b); at < 0 {
			return min(len(b), ethernet)
		}
	}
	return min(len(b), at+network(b[min(len(b), at):], 0))
}

// link returns where the packet begins in a frame; -1: it is none of IP.
func link(b []byte) int {
	if len(b) < ethernet {
		return -1
	}
	at, kind := ethernet, binary.BigEndian.Uint16(b[12:])
	for (kind == typeVLAN || kind == typeVLANAD) && len(b) >= at+vlan {
		kind = binary.BigEndian.Uint16(b[at+2:])
		at += vlan
	}
	if kind != typeIPv4 && kind != typeIPv6 {
		return -1
	}
	return at
}

// deepest bounds the nesting of packets.
const deepest = 3

// network returns the number of header bytes of an IP packet.
func network(b []byte, depth int) int {
	if len(b) < 20 || depth == deepest {
		return 0
	}
	size, protocol, fragment := int(b[0]&15)*4, b[9], binary.BigEndian.Uint16(b[6:])&0x1fff != 0
	if b[0]>>4 == 6 {
		size, protocol, fragment = extensions(b)
	}
	if size > len(b) || fragment {
		return min(size, len(b))
	}
	return size + transport(b[size:], protocol, depth)
}

// extensions returns the end of the last header of an IPv6 packet, and the protocol after it.
func extensions(b []byte) (size int, protocol byte, fragment bool) {
	size, protocol = 40, b[6]
	for len(b) >= size+8 {
		switch protocol {
		case 0, 43, 60:
			protocol, size = b[size], size+8*(int(b[size+1])+1)
		case 44:
			fragment = binary.BigEndian.Uint16(b[size+2:])&^7 != 0
			protocol, size = b[size], size+8
		default:
			return size, protocol, fragment
		}
	}
	return size, protocol, fragment
}

// transport returns the number of header bytes in the payload of an IP packet.
func transport(b []byte, protocol byte, depth int) int {
	switch protocol {
	case tcp:
		if len(b) > 12 {
			return min(len(b), max(20, int(b[12]>>4)*4))
		}
	case udp:
		if inner := b[min(len(b), 8+vxlan):]; len(b) > 8 && binary.BigEndian.Uint16(b[2:]) == vxlanPort {
			if at := link(inner); at >= 0 {
				return 8 + vxlan + at + network(inner[at:], depth+1)
			}
		}
		return min(len(b), 8)
	case icmp4, icmp6:
		if len(b) > 8 && isError(protocol, b[0]) {
			return 8 + network(b[8:], deepest-1)
		}
		return min(len(b), 8)
	case tunnel4, tunnel6:
		return network(b, depth+1)
	}
	return 0
}

// isError reports whether an ICMP message quotes a packet.
func isError(protocol, kind byte) bool {
	if protocol == icmp6 {
		return kind < 128
	}
	return kind == 3 || kind == 4 || kind == 5 || kind == 11 || kind == 12
}
