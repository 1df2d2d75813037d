package announce

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// frame returns the frame that announces to everybody on the link that mac has the address.
//
// gopacket's layers would save 6 lines of this file, return an error that cannot happen, and pad
// ARP to 60 bytes.
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
// itself to all nodes, which overrides what they know.
func unsolicitedNA(a [16]byte, mac net.HardwareAddr) []byte {
	const icmp, length = 14 + 40, 24 + 8
	allNodes := [16]byte{0: 0xff, 1: 0x02, 15: 0x01}
	f := make([]byte, icmp+length)
	copy(f, []byte{0x33, 0x33, 0, 0, 0, 1})
	copy(f[6:], mac)
	binary.BigEndian.PutUint16(f[12:], unix.ETH_P_IPV6)
	f[14] = 6 << 4
	binary.BigEndian.PutUint16(f[18:], length)
	f[20], f[21] = unix.IPPROTO_ICMPV6, 255
	copy(f[22:], a[:])
	copy(f[38:], allNodes[:])
	f[icmp] = 136      // neighbour advertisement
	f[icmp+4] = 1 << 5 // override
	copy(f[icmp+8:], a[:])
	f[icmp+24], f[icmp+25] = 2, 1 // option: target's link-layer address, 8 bytes
	copy(f[icmp+26:], mac)
	setICMPv6Checksum(f)
	return f
}

// setICMPv6Checksum sets the checksum of an Ethernet frame with an ICMPv6 message.
func setICMPv6Checksum(f []byte) {
	const ip, icmp = 14, 14 + 40
	sum := uint32(len(f)-icmp) + unix.IPPROTO_ICMPV6 // the pseudo-header's
	for i := ip + 8; i < len(f); i += 2 {            // from the addresses on
		sum += uint32(binary.BigEndian.Uint16(f[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(f[icmp+2:], ^uint16(sum))
}
