package pkt

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
)

// Chunks of SCTP, `chunks init=7`, `chunks sack,data:20`:
//
//	NAME        a chunk without value; its name is that of RFC 9260, or c NUMBER
//	NAME:LEN    with a value of so many letters; DATA: of user data
//	NAME=TAG    INIT and INIT ACK, with this initiate tag
//	NAME+t      with flag T
//	NAME=TAG/P  with parameters: 1.1.1.1 lists an address, -1.1.1.1 is padding that has replaced
//	            it, and 40 is a cookie of so many letters
const (
	chunkHeader = 4
	dataHeader  = 12 // of a DATA chunk's value
	initValue   = 16 // of INIT, without parameters
	flagT       = 1
)

// chunkName returns the name of a chunk type.
func chunkName(kind byte) string {
	names := [...]string{"data", "init", "init-ack", "sack", "heartbeat", "heartbeat-ack", "abort", "shutdown", "shutdown-ack", "error", "cookie-echo", "cookie-ack", "", "", "shutdown-complete"}
	if int(kind) < len(names) && names[kind] != "" {
		return names[kind]
	}
	return "c" + strconv.Itoa(int(kind))
}

func chunkNamed(name string) (kind byte, ok bool) {
	for n := range 256 {
		if chunkName(byte(n)) == name {
			return byte(n), true
		}
	}
	return 0, false
}

// encodeChunks makes the bytes of chunks, padded.
func encodeChunks(text string) ([]byte, error) {
	var b []byte
	for word := range strings.SplitSeq(text, ",") {
		chunk, err := encodeChunk(word)
		if err != nil {
			return nil, fmt.Errorf("chunks %q: %w", word, err)
		}
		b = append(b, chunk...)
	}
	return b, nil
}

func encodeChunk(word string) ([]byte, error) {
	word, parameters, hasParameters := strings.Cut(word, "/")
	name, length, hasLength := strings.Cut(word, ":")
	name, tag, hasTag := strings.Cut(name, "=")
	name, isReflected := strings.CutSuffix(name, "+t")
	kind, ok := chunkNamed(name)
	if !ok {
		return nil, fmt.Errorf("want the name of a chunk, or c NUMBER, with +t, =TAG or :LENGTH")
	}
	n, err1 := strconv.ParseUint("0"+length, 10, 14)
	t, err2 := strconv.ParseUint("0"+tag, 10, 32)
	if err1 != nil || err2 != nil || hasLength && length == "" || hasTag && tag == "" {
		return nil, fmt.Errorf("want a length up to 16383, and a tag of 32 bits")
	}
	b := []byte{kind, 0, 0, 0}
	if isReflected {
		b[1] = flagT
	}
	switch {
	case hasTag:
		b = binary.BigEndian.AppendUint32(b, uint32(t))
		b = append(b, make([]byte, initValue-4)...)
	case name == "data":
		b = append(b, make([]byte, dataHeader)...)
	}
	b = append(b, letters(int(n))...)
	if hasParameters && !hasTag {
		return nil, fmt.Errorf("want =TAG before addresses, -addresses or a cookie's length")
	}
	if hasParameters {
		more, err := encodeParameters(parameters)
		if err != nil {
			return nil, fmt.Errorf("want addresses, -addresses or a cookie's length after =TAG: %w", err)
		}
		b = append(b, more...)
	}
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	return append(b, make([]byte, -len(b)&3)...), nil
}

// decodeChunks returns the text of chunks; false: it would have other bytes.
func decodeChunks(b []byte) (string, bool) {
	var words []string
	for rest := b; len(rest) >= chunkHeader; {
		size := int(binary.BigEndian.Uint16(rest[2:]))
		if size < chunkHeader || size > len(rest) {
			return "", false
		}
		words = append(words, decodeChunk(rest[:size]))
		rest = rest[min((size+3)&^3, len(rest)):]
	}
	text := strings.Join(words, ",")
	back, err := encodeChunks(text)
	return text, err == nil && slices.Equal(back, b)
}

func decodeChunk(b []byte) string {
	word, size := chunkName(b[0]), len(b)-chunkHeader
	if b[1] == flagT {
		word += "+t"
	}
	switch {
	case (word == "init" || word == "init-ack") && size >= initValue:
		word += "=" + strconv.FormatUint(uint64(binary.BigEndian.Uint32(b[chunkHeader:])), 10)
		size -= initValue
		if text, ok := decodeParameters(b[chunkHeader+initValue:]); ok {
			return word + text
		}
	case word == "data":
		size -= dataHeader
	}
	if size > 0 {
		word += ":" + strconv.Itoa(size)
	}
	return word
}

func (p *Packet) sctp() []byte {
	b := make([]byte, 12)
	p.ports(b)
	binary.BigEndian.PutUint32(b[4:], uint32(p.Num(Tag)))
	if p.Has(Chunks) {
		chunks, _ := encodeChunks(p.Value(Chunks).Text) // Parse and Decode accept nothing else
		b = append(b, chunks...)
	} else {
		b = append(b, p.payload()...)
	}
	binary.LittleEndian.PutUint32(b[8:], p.crc(b))
	return b
}

// crc returns the stated checksum, or the right one of b, whose field is 0. A bad checksum is the
// right one with one bit inverted, so it stays bad in the same way after an incremental
// translation.
func (p *Packet) crc(b []byte) uint32 {
	right := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	v, stated := p.values[CRC]
	switch {
	case !stated || v.Text == "right":
		return right
	case v.Text == "bad":
		return right ^ 1
	case v.Text == "zero" || v.Text == "partial":
		return 0
	}
	return uint32(v.Num)
}

func decodeSCTP(b []byte) *Packet {
	if len(b) < 12 {
		return nil
	}
	p := New(SCTP)
	p.decodePorts(b)
	p.SetNum(Tag, uint64(binary.BigEndian.Uint32(b[4:])))
	if text, ok := decodeChunks(b[12:]); ok && text != "" {
		p.Set(Chunks, Value{Text: text})
	} else {
		p.setPayload(b[12:])
	}
	zeroed := slices.Clone(b)
	clear(zeroed[8:12])
	right, got := p.crc(zeroed), binary.LittleEndian.Uint32(b[8:])
	switch got {
	case right:
	case right ^ 1:
		p.Set(CRC, Value{Text: "bad"})
	case 0:
		p.Set(CRC, Value{Text: "zero"})
	default:
		p.SetNum(CRC, uint64(got))
	}
	return p
}
