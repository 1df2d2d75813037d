package pkt

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// TCP options, `opt mss:1460,sackok,ts:1:0,nop,ws:7`:
//
//	nop eol sackok mss:SIZE ws:SHIFT ts:VALUE:ECHO
//	o30:HEX   option of the kind 30 with this content
//	x:HEX     bytes as they are
//	-         none, where a pattern takes away what the packet had
//
// The area is filled with zeros to a multiple of four bytes.
const maxTCPOptions = 40

// encodeTCPOpt returns the option area without the filling.
func encodeTCPOpt(text string) ([]byte, error) {
	var b []byte
	if text == "" {
		return nil, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		opt, err := encodeOption(word)
		if err != nil {
			return nil, fmt.Errorf("opt %q: %w", word, err)
		}
		b = append(b, opt...)
	}
	if len(b) > maxTCPOptions {
		return nil, fmt.Errorf("opt: %d bytes, at most %d fit into a TCP header", len(b), maxTCPOptions)
	}
	return b, nil
}

func encodeOption(word string) ([]byte, error) {
	name, arg, _ := strings.Cut(word, ":")
	switch name {
	case "eol":
		return []byte{0}, nil
	case "nop":
		return []byte{1}, nil
	case "mss":
		n, err := strconv.ParseUint(arg, 10, 16)
		return binary.BigEndian.AppendUint16([]byte{2, 4}, uint16(n)), optionError(err)
	case "ws":
		n, err := strconv.ParseUint(arg, 10, 8)
		return []byte{3, 3, byte(n)}, optionError(err)
	case "sackok":
		return []byte{4, 2}, nil
	case "ts":
		value, echo, _ := strings.Cut(arg, ":")
		v, err1 := strconv.ParseUint(value, 10, 32)
		e, err2 := strconv.ParseUint(echo, 10, 32)
		b := binary.BigEndian.AppendUint32([]byte{8, 10}, uint32(v))
		return binary.BigEndian.AppendUint32(b, uint32(e)), optionError(err1, err2)
	case "x":
		b, err := hex.DecodeString(arg)
		return b, optionError(err)
	}
	number, ok := strings.CutPrefix(name, "o")
	kind, err1 := strconv.ParseUint(number, 10, 8)
	b, err2 := hex.DecodeString(arg)
	if !ok || err1 != nil || err2 != nil || len(b) > 38 {
		return nil, fmt.Errorf("want nop, eol, sackok, mss:SIZE, ws:SHIFT, ts:VALUE:ECHO, oKIND:BYTES or x:BYTES")
	}
	return append([]byte{byte(kind), byte(2 + len(b))}, b...), nil
}

func optionError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("not a number of the right size")
		}
	}
	return nil
}

// fillTCPOpt fills the area up to a multiple of four.
func fillTCPOpt(b []byte) []byte {
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// decodeTCPOpt writes an option area (filled) as text.
func decodeTCPOpt(area []byte) string {
	var words []string
	for b := area; len(b) > 0; {
		word, n := decodeOption(b)
		if n == 0 {
			break
		}
		if word == "eol" && len(b) < 4 {
			break // filling
		}
		words, b = append(words, word), b[n:]
	}
	text := strings.Join(words, ",")
	if back, err := encodeTCPOpt(text); err == nil && string(fillTCPOpt(back)) == string(area) {
		return text
	}
	return "x:" + hex.EncodeToString(area)
}

func decodeOption(b []byte) (word string, size int) {
	switch {
	case b[0] == 0:
		return "eol", 1
	case b[0] == 1:
		return "nop", 1
	case len(b) < 2 || b[1] < 2 || int(b[1]) > len(b):
		return "", 0
	}
	size = int(b[1])
	switch {
	case b[0] == 2 && size == 4:
		return fmt.Sprintf("mss:%d", binary.BigEndian.Uint16(b[2:])), size
	case b[0] == 3 && size == 3:
		return fmt.Sprintf("ws:%d", b[2]), size
	case b[0] == 4 && size == 2:
		return "sackok", size
	case b[0] == 8 && size == 10:
		return fmt.Sprintf("ts:%d:%d", binary.BigEndian.Uint32(b[2:]), binary.BigEndian.Uint32(b[6:])), size
	}
	return fmt.Sprintf("o%d:%x", b[0], b[2:size]), size
}
