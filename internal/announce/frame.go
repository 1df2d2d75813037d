package announce

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// frame returns the frame that announces mac as the owner of an address.
func frame(a netip.Addr, mac net.HardwareAddr) []byte {
	if a.Is4() {
		return gratuitousARP(a.As4(), mac)
	}
	return unsolicitedNA(a.As16(), mac)
}

// gratuitousARP returns an ARP announcement (RFC 5227): a request whose sender asks for its own
// address. A reply is the other form in use; Linux, the BSDs and switches accept both.
func gratuitousARP(a [4]byte, mac net.HardwareAddr) []byte {
	f := make([]byte, 0, 14+28)
	f = append(f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	f = append(f, mac...)
	f = binary.BigEndian.AppendUint16(f, unix.ETH_P_ARP)
	f = binary.BigEndian.AppendUint16(f, unix.ARPHRD_ETHER)
	f = binary.BigEndian.AppendUint16(f, unix.ETH_P_IP)
	f = append(f, 6, 4, 0, 1) // lengths of both addresses; a request
	f = append(f, mac...)
	f = append(f, a[:]...)
	f = append(f, 0, 0, 0, 0, 0, 0) // its MAC address is unknown
	return append(f, a[:]...)
}

// unsolicitedNA returns an unsolicited neighbour advertisement (RFC 4861, 7.2.6) from the address
// itself to all nodes, which overrides their entries.
func unsolicitedNA(a [16]byte, mac net.HardwareAddr) []byte {
	allNodes := [16]byte{0: 0xff, 1: 0x02, 15: 0x01}
	f := ndFrame(136, 24+8, a, allNodes, a, mac)
	f[icmpStart+4] = 1 << 5                 // override
	f[icmpStart+24], f[icmpStart+25] = 2, 1 // option: target's link-layer address, 8 bytes
	copy(f[icmpStart+26:], mac)
	setICMPv6Checksum(f)
	return f
}

// duplicateSolicitation returns the neighbour solicitation of duplicate address detection (RFC
// 4862, 5.4.2): from ::, to the solicited-node group of the address.
func duplicateSolicitation(a [16]byte, mac net.HardwareAddr) []byte {
	group := [16]byte{0: 0xff, 1: 0x02, 11: 1, 12: 0xff, 13: a[13], 14: a[14], 15: a[15]}
	f := ndFrame(135, 24, [16]byte{}, group, a, mac)
	setICMPv6Checksum(f)
	return f
}

// ipStart and icmpStart are where the headers of an Ethernet frame with ICMPv6 begin.
const ipStart, icmpStart = 14, 14 + 40

// ndFrame returns an Ethernet frame to a multicast group with a message of neighbour discovery
// about a target (RFC 4861, 4.3 and 4.4), without flags, options and checksum. length is the number
// of bytes of the message.
func ndFrame(kind byte, length uint16, source, group, target [16]byte, mac net.HardwareAddr) []byte {
	f := make([]byte, icmpStart+length)
	copy(f, []byte{0x33, 0x33, group[12], group[13], group[14], group[15]}) // RFC 2464, 7
	copy(f[6:], mac)
	binary.BigEndian.PutUint16(f[12:], unix.ETH_P_IPV6)
	f[ipStart] = 6 << 4
	binary.BigEndian.PutUint16(f[ipStart+4:], length)
	f[ipStart+6], f[ipStart+7] = unix.IPPROTO_ICMPV6, 255
	copy(f[ipStart+8:], source[:])
	copy(f[ipStart+24:], group[:])
	f[icmpStart] = kind
	copy(f[icmpStart+8:], target[:])
	return f
}

// setICMPv6Checksum sets the checksum of an Ethernet frame with an ICMPv6 message.
func setICMPv6Checksum(f []byte) {
	sum := uint32(len(f)-icmpStart) + unix.IPPROTO_ICMPV6 // the pseudo-header's
	for i := ipStart + 8; i < len(f); i += 2 {            // from the addresses on
		sum += uint32(binary.BigEndian.Uint16(f[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(f[icmpStart+2:], ^uint16(sum))
}
