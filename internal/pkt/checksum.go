package pkt

import (
	"encoding/binary"
	"net/netip"
)

// sum adds b to a ones' complement sum. b starts at an even offset.
func sum(acc uint64, b []byte) uint64 {
	for len(b) >= 2 {
		acc += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		acc += uint64(b[0]) << 8
	}
	return acc
}

// fold brings a sum down to 16 bits.
func fold(acc uint64) uint16 {
	for acc > 0xffff {
		acc = acc>>16 + acc&0xffff
	}
	return uint16(acc)
}

// pseudoHeader sums the pseudo header of TCP, UDP and ICMPv6.
func pseudoHeader(src, dst netip.Addr, proto byte, length int) uint64 {
	acc := sum(sum(0, src.AsSlice()), dst.AsSlice())
	return acc + uint64(proto) + uint64(length>>16) + uint64(length&0xffff)
}

// sums are the values that the checksum field of a header may have; a Value of Sum or IPSum selects
// one.
type sums struct {
	right   uint16
	partial uint16 // the pseudo-header alone, as CHECKSUM_PARTIAL leaves it for the device
	udp     bool   // 0 means no checksum, and a checksum of 0 is sent as 0xffff
}

// checksums computes the sums over b, whose own checksum field is zero.
func checksums(pseudo uint64, b []byte, udp bool) sums {
	s := sums{right: ^fold(sum(pseudo, b)), partial: fold(pseudo), udp: udp}
	if udp && s.right == 0 {
		s.right = 0xffff
	}
	return s
}

// value returns the checksum for a stated value. A bad sum is the right one plus one (in ones'
// complement), so a translation that adjusts sums keeps it equally bad.
func (s sums) value(v Value, stated bool) uint16 {
	switch {
	case !stated || v.Text == "right":
		return s.right
	case v.Text == "bad":
		return fold(uint64(s.right) + 1)
	case v.Text == "zero":
		return 0
	case v.Text == "partial":
		return s.partial
	}
	return uint16(v.Num)
}

// explain is the reverse of value: it returns the stated value of a packet with this sum; ok is
// false for the right sum. 0 and 0xffff are one number in ones' complement, and an adjusted sum may
// be either.
func (s sums) explain(got uint16) (v Value, ok bool) {
	bad := fold(uint64(s.right) + 1)
	switch {
	case got == s.right:
		return Value{}, false
	case got == bad, got == 0 && bad == 0xffff && !s.udp:
		return Value{Text: "bad"}, true
	case got == 0:
		return Value{Text: "zero"}, true
	case got == s.partial:
		return Value{Text: "partial"}, true
	}
	return Value{Num: uint64(got)}, true
}
