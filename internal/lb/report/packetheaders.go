package report

import "encoding/binary"

const (
	ethernetSize = 14
	vlanSize     = 4

	typeIPv4, typeIPv6   = 0x0800, 0x86dd
	typeVLAN, typeVLANAD = 0x8100, 0x88a8

	protocolICMP, protocolIPv4, protocolTCP, protocolUDP, protocolIPv6, protocolICMPv6 = 1, 4, 6, 17, 41, 58
	vxlanPort, vxlanSize                                                               = 4789, 8
)

// HeaderLength returns the number of bytes of the data that are headers, including those of
// tunnels, of packets in them, and of packets quoted by ICMP errors. Everything after the headers
// is payload, which is confidential. Packets other than IP have only a link-layer header.
func (v *PacketView) HeaderLength() int {
	b := v.Data
	at := 0
	if !v.Layer3 {
		if at = linkHeader(b); at < 0 {
			return min(len(b), ethernetSize)
		}
	}
	return min(len(b), at+networkHeaders(b[min(len(b), at):], 0))
}

// linkHeader returns where the packet begins in a frame; -1: it is none of IP.
func linkHeader(b []byte) int {
	if len(b) < ethernetSize {
		return -1
	}
	at, kind := ethernetSize, binary.BigEndian.Uint16(b[12:])
	for (kind == typeVLAN || kind == typeVLANAD) && len(b) >= at+vlanSize {
		kind = binary.BigEndian.Uint16(b[at+2:])
		at += vlanSize
	}
	if kind != typeIPv4 && kind != typeIPv6 {
		return -1
	}
	return at
}

// maxNesting bounds the nesting of packets.
const maxNesting = 3

// networkHeaders returns the number of header bytes of an IP packet.
func networkHeaders(b []byte, depth int) int {
	if len(b) < 20 || depth == maxNesting {
		return 0
	}
	size, protocol, fragment := int(b[0]&15)*4, b[9], binary.BigEndian.Uint16(b[6:])&0x1fff != 0
	if b[0]>>4 == 6 {
		size, protocol, fragment = extensionHeaders(b)
	}
	if size > len(b) || fragment {
		return min(size, len(b))
	}
	return size + transportHeaders(b[size:], protocol, depth)
}

// extensionHeaders returns the end of the last header of an IPv6 packet, and the protocol after it.
func extensionHeaders(b []byte) (size int, protocol byte, fragment bool) {
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

// transportHeaders returns the number of header bytes in the payload of an IP packet.
func transportHeaders(b []byte, protocol byte, depth int) int {
	switch protocol {
	case protocolTCP:
		if len(b) > 12 {
			return min(len(b), max(20, int(b[12]>>4)*4))
		}
	case protocolUDP:
		if inner := b[min(len(b), 8+vxlanSize):]; len(b) > 8 && binary.BigEndian.Uint16(b[2:]) == vxlanPort {
			if at := linkHeader(inner); at >= 0 {
				return 8 + vxlanSize + at + networkHeaders(inner[at:], depth+1)
			}
		}
		return min(len(b), 8)
	case protocolICMP, protocolICMPv6:
		if len(b) > 8 && isICMPError(protocol, b[0]) {
			return 8 + networkHeaders(b[8:], maxNesting-1)
		}
		return min(len(b), 8)
	case protocolIPv4, protocolIPv6:
		return networkHeaders(b, depth+1)
	}
	return 0
}

// isICMPError reports whether an ICMP message quotes a packet.
func isICMPError(protocol, kind byte) bool {
	if protocol == protocolICMPv6 {
		return kind < 128
	}
	return kind == 3 || kind == 4 || kind == 5 || kind == 11 || kind == 12
}
