package pkt

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Types of parameters of INIT and INIT ACK.
const (
	parameterIPv4    = 5
	parameterIPv6    = 6
	parameterCookie  = 7
	parameterPadding = 0x8005
	parameterHeader  = 4
)

// encodeParameters makes the parameters of `P/P`, padded.
func encodeParameters(text string) (b []byte, err error) {
	for word := range strings.SplitSeq(text, "/") {
		kind, value := uint16(parameterCookie), []byte(nil)
		if n, err := strconv.ParseUint(word, 10, 14); err == nil {
			value = letters(int(n))
		} else {
			plain, isPadding := strings.CutPrefix(word, "-")
			a, err := netip.ParseAddr(plain)
			if err != nil {
				return nil, fmt.Errorf("parameter %q: %w", word, err)
			}
			kind, value = parameterIPv6, a.AsSlice()
			if a.Is4() {
				kind = parameterIPv4
			}
			if isPadding {
				kind = parameterPadding
			}
		}
		b = binary.BigEndian.AppendUint16(b, kind)
		b = binary.BigEndian.AppendUint16(b, uint16(parameterHeader+len(value)))
		b = append(append(b, value...), make([]byte, -len(value)&3)...)
	}
	return b, nil
}

// decodeParameters returns the text of parameters, `/P/P`; false: it would have other bytes.
func decodeParameters(b []byte) (string, bool) {
	text := ""
	for rest := b; len(rest) > 0; {
		if len(rest) < parameterHeader {
			return "", false
		}
		kind, size := binary.BigEndian.Uint16(rest), int(binary.BigEndian.Uint16(rest[2:]))
		if size < parameterHeader || size > len(rest) {
			return "", false
		}
		text += "/" + decodeParameter(kind, rest[parameterHeader:size])
		rest = rest[min((size+3)&^3, len(rest)):]
	}
	if text == "" {
		return "", false
	}
	back, err := encodeParameters(text[1:])
	return text, err == nil && slices.Equal(back, b)
}

func decodeParameter(kind uint16, value []byte) string {
	a, isAddress := netip.AddrFromSlice(value)
	switch {
	case kind == parameterPadding && isAddress:
		return "-" + a.String()
	case (kind == parameterIPv4 || kind == parameterIPv6) && isAddress:
		return a.String()
	}
	return strconv.Itoa(len(value))
}
