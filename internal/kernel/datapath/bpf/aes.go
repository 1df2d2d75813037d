package bpf

import (
	"encoding/binary"
	"math/bits"
)

// The tables and keys with which the packet path runs AES-128 (bpf/quic/aes.h). A word holds a
// column of four bytes in little-endian order.

// AESTables returns the tables of both directions.
func AESTables() *TcQuicAes {
	t := &TcQuicAes{}
	for i, to := range aesBox() {
		t.ForwardBox[i], t.InverseBox[to] = to, uint8(i)
	}
	for i := range 256 {
		t.Forward[i] = aesColumn(t.ForwardBox[i], 2, 1, 1, 3)
		t.Inverse[i] = aesColumn(t.InverseBox[i], 14, 9, 13, 11)
	}
	return t
}

// aesProduct multiplies in the field of AES.
func aesProduct(a, b uint8) (product uint8) {
	for ; b != 0; b >>= 1 {
		if b&1 != 0 {
			product ^= a
		}
		high := a >> 7
		a = a<<1 ^ high*0x1b
	}
	return product
}

// aesBox returns the substitution of bytes: the inverse in the field, and an affine transformation.
func aesBox() (box [256]uint8) {
	power, inverse := uint8(1), uint8(1) // of 3, which generates the field, and of its inverse
	for range 255 {
		x := inverse
		for i := range 4 {
			x ^= bits.RotateLeft8(inverse, i+1)
		}
		box[power] = x ^ 0x63
		power, inverse = aesProduct(power, 3), aesProduct(inverse, 0xf6)
	}
	box[0] = 0x63
	return box
}

// aesColumn returns the product of a byte and a column.
func aesColumn(by uint8, column ...uint8) (word uint32) {
	for i, c := range column {
		word |= uint32(aesProduct(by, c)) << (8 * i)
	}
	return word
}

// AESKeys returns the keys of the rounds.
func AESKeys(key [16]byte) (words [TcQuicLimitQUIC_KEY_WORDS]uint32) {
	box, round := aesBox(), uint8(1)
	for i := range words {
		if i < 4 {
			words[i] = binary.LittleEndian.Uint32(key[4*i:])
			continue
		}
		word := words[i-1]
		if i%4 == 0 {
			word = bits.RotateLeft32(word, -8)
			for at := 0; at < 32; at += 8 {
				word = word&^(0xff<<at) | uint32(box[uint8(word>>at)])<<at
			}
			word ^= uint32(round)
			round = aesProduct(round, 2)
		}
		words[i] = words[i-4] ^ word
	}
	return words
}

// AESInverseKeys returns the round keys of the equivalent inverse cipher: in reverse order, and
// mixed except for the first and the last.
func AESInverseKeys(key [16]byte) (words [TcQuicLimitQUIC_KEY_WORDS]uint32) {
	forward := AESKeys(key)
	last := len(words) - 4
	for i := range words {
		word := forward[last-i/4*4+i%4]
		if i >= 4 && i < last {
			mixed := uint32(0)
			for row := range 4 {
				mixed ^= bits.RotateLeft32(aesColumn(uint8(word>>(8*row)), 14, 9, 13, 11), 8*row)
			}
			word = mixed
		}
		words[i] = word
	}
	return words
}
