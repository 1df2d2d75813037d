package compile

import (
	"encoding/binary"
	"encoding/hex"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
)

// block is the number of bytes of a block of AES.
const block = 16

// minNonce is the length of the shortest nonce.
const minNonce = 4

// serverID returns a server ID as the maps store it.
func serverID(text string) (id bpf.ServerID) {
	bytes, err := hex.DecodeString(text)
	if err != nil || text == "" || len(bytes) >= block {
		return id
	}
	var padded [block]byte
	copy(padded[:], bytes)
	padded[block-1] = uint8(len(bytes))
	return words(padded)
}

// words returns 16 bytes as two little-endian words.
func words(b [block]byte) [2]uint64 {
	return [2]uint64{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}
}

// quicConfigs returns the rows with which packets' connection IDs are read
// (bpf/quic/connection_id.h); none if no endpoint has a server ID.
func quicConfigs(s *lb.Service) (list []bpf.QUICConfig) {
	length := 0
	for _, e := range s.Endpoints {
		length = max(length, len(e.ServerID)/2)
	}
	if length == 0 {
		return nil
	}
	for _, c := range s.QUICConfigs() {
		list = append(list, bpf.QUICConfig{Number: uint32(c.Number), Row: quicConfig(c, length)})
	}
	return list
}

// quicConfig returns the row of a configuration. length is that of server IDs, in bytes.
func quicConfig(c lb.QUICConfig, length int) bpf.TcQuicConfig {
	var mask [block]byte
	for i := range length {
		mask[i] = 0xff
	}
	row := bpf.TcQuicConfig{IdMask: words(mask), IdLength: uint8(length), Length: uint8(length + minNonce)}
	if c.Key == "" {
		return row
	}
	var key [block]byte
	if _, err := hex.Decode(key[:], []byte(c.Key)); err != nil { // never happens: the service is valid
		return row
	}
	all := length + int(c.Nonce) // bytes of a connection ID that are encrypted
	row.Length, row.Keys = uint8(all), bpf.AESKeys(key)
	if all == block {
		row.Cipher, row.Keys = uint8(bpf.TcQuicCipherQUIC_SINGLE_PASS), bpf.AESInverseKeys(key)
		return row
	}
	row.Cipher = uint8(bpf.TcQuicCipherQUIC_THREE_PASSES)
	if length > all/2 {
		row.Cipher = uint8(bpf.TcQuicCipherQUIC_FOUR_PASSES)
	}
	left, right := halves(all)
	row.LeftMask, row.RightMask, row.Right = words(left), words(right), uint8(all/2)
	return row
}

// halves returns the masks of the left and the right half of length bytes, each from its own first
// byte on. If length is odd, each half has four bits of the byte in the middle.
func halves(length int) (left, right [block]byte) {
	half := (length + 1) / 2
	for i := range half {
		left[i], right[i] = 0xff, 0xff
	}
	if length%2 != 0 {
		left[half-1], right[0] = 0xf0, 0x0f
	}
	return left, right
}
