package packet

import (
	"encoding/binary"
	"math/bits"
	"testing"
)

// siphash is SipHash with c rounds for each word and d at the end, implemented from the paper
// independently of bpf/packet/siphash.h.
func siphash(c, d int, k0, k1 uint64, message []byte) uint64 {
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	rounds := func(n int) {
		for range n {
			v[0] += v[1]
			v[2] += v[3]
			v[1], v[3] = bits.RotateLeft64(v[1], 13)^v[0], bits.RotateLeft64(v[3], 16)^v[2]
			v[0] = bits.RotateLeft64(v[0], 32)
			v[2] += v[1]
			v[0] += v[3]
			v[1], v[3] = bits.RotateLeft64(v[1], 17)^v[2], bits.RotateLeft64(v[3], 21)^v[0]
			v[2] = bits.RotateLeft64(v[2], 32)
		}
	}
	padded := append([]byte(nil), message...)
	for len(padded)%8 != 7 {
		padded = append(padded, 0)
	}
	padded = append(padded, byte(len(message)))
	for ; len(padded) > 0; padded = padded[8:] {
		word := binary.LittleEndian.Uint64(padded)
		v[3] ^= word
		rounds(c)
		v[0] ^= word
	}
	v[2] ^= 0xff
	rounds(d)
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

// TestSipHashVectors checks the vectors of the authors' reference code for 2-4
// (github.com/veorq/SipHash), and of Linux for 1-3, whose hsiphash is its lower half
// (lib/test_siphash.c): key 00 01 .. 0f, message 00 01 .. of that length.
func TestSipHashVectors(t *testing.T) {
	t.Parallel()
	message := make([]byte, 64)
	for i := range message {
		message[i] = byte(i)
	}
	const k0, k1 = 0x0706050403020100, 0x0f0e0d0c0b0a0908
	for length, want := range map[int]uint64{
		0: 0x726fdb47dd0e0e31, 1: 0x74f839c593dc67fd, 8: 0x93f5f5799a932462, 15: 0xa129ca6149be45e5, 16: 0x3f2acc7f57c29bdb, 40: 0x0e3ea96b5304a7d0,
	} {
		if got := siphash(2, 4, k0, k1, message[:length]); got != want {
			t.Errorf("SipHash-2-4 of %d bytes is %#x, want %#x", length, got, want)
		}
	}
	for length, want := range map[int]uint32{0: 0x050fc4dc, 1: 0x7d57ca93, 2: 0x4dc7d44d, 8: 0x8d299a8e, 12: 0x57b4d9a2} {
		if got := uint32(siphash(1, 3, k0, k1, message[:length])); got != want {
			t.Errorf("SipHash-1-3 of %d bytes ends in %#x, want %#x", length, got, want)
		}
	}
}
