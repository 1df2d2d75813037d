package transport

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// kind is the type of a frame's content.
type kind byte

const (
	kindHello   kind = iota + 1 // JSON
	kindWelcome                 // JSON
	kindRecords                 // records, one after the other
	kindBulkEnd                 // all connections that the sender had have been sent
	kindPing                    // keeps the connection alive
	kindAck                     // number of applied records: 8 bytes
	kindClients                 // records of clients, one after the other; since version 2
	kindState                   // the node's state, JSON; FeatureState
	kindPacked                  // records that may refer to earlier ones; FeaturePacked
	kindEnds                    // an age, and packed records of ended connections; FeatureEnds
)

// MaxFrame is the maximum length of a frame's payload.
const MaxFrame = 64 << 10

const frameHead = 4 // the kind, and the length in 3 bytes

// appendFrame appends a frame.
func appendFrame(b []byte, k kind, payload []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(k)<<24|uint32(len(payload)))
	return append(b, payload...)
}

// readFrame reads a frame into buf, of MaxFrame bytes.
func readFrame(r *bufio.Reader, buf []byte) (kind, []byte, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	word := binary.BigEndian.Uint32(head[:])
	length := word & 0xffffff
	if length > uint32(len(buf)) {
		return 0, nil, fmt.Errorf("a frame of %d bytes is longer than %d", length, len(buf))
	}
	if _, err := io.ReadFull(r, buf[:length]); err != nil {
		return 0, nil, err
	}
	return kind(word >> 24), buf[:length], nil
}
