package connections

import (
	"encoding/binary"
	"hash/crc32"
)

const (
	sctpHeaderBytes = 12 // ports, verification tag, checksum
	abortBytes      = sctpHeaderBytes + 4
	chunkABORT      = 6
)

// abort returns an SCTP packet with an ABORT chunk, without verification tag and checksum.
func abort(sport, dport uint16) []byte {
	p := make([]byte, abortBytes)
	binary.BigEndian.PutUint16(p, sport)
	binary.BigEndian.PutUint16(p[2:], dport)
	p[sctpHeaderBytes] = chunkABORT
	binary.BigEndian.PutUint16(p[sctpHeaderBytes+2:], abortBytes-sctpHeaderBytes)
	return p
}

// sealAbort sets the checksum of a frame that ends with an ABORT and has its tag.
func sealAbort(frame []byte) []byte {
	p := frame[len(frame)-abortBytes:]
	binary.LittleEndian.PutUint32(p[8:], crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)))
	return frame
}
