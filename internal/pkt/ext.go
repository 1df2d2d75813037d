package pkt

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// IPv6 extension headers, `ext hbh,dst:16,rt:0,frag:1480+`, from the first to the last:
//
//	hbh[:SIZE] dst[:SIZE]   options, filled with PadN; SIZE in bytes, 8 if not given
//	rt:TYPE[:LEFT]          routing header with one address, 24 bytes; LEFT segments left, 1 if not given
//	frag:OFFSET[+][:ID]     fragment header; + for more fragments
//	dst*180                 the same header 180 times
//	x60:HEX                 header of the type 60 with these bytes, the first of which is what follows (set by Build)
const (
	extHopByHop = 0
	extRouting  = 43
	extFragment = 44
	extOptions  = 60

	maxExtensions = 4096 // more of the smallest than the data path can reach
)

// extension is one header: its type and its bytes, the first of which is set when the chain is
// assembled.
type extension struct {
	kind byte
	data []byte
}

func parseExt(text string) ([]extension, error) {
	var chain []extension
	for word := range strings.SplitSeq(text, ",") {
		one, times, repeated := strings.Cut(word, "*")
		n := uint64(1)
		if repeated {
			var err error
			if n, err = strconv.ParseUint(times, 10, 16); err != nil || n == 0 {
				return nil, fmt.Errorf("ext %q: a header is repeated 1 to %d times", word, maxExtensions)
			}
		}
		ext, err := parseExtension(one)
		if err != nil {
			return nil, fmt.Errorf("ext %q: %w", word, err)
		}
		if uint64(len(chain))+n > maxExtensions {
			return nil, fmt.Errorf("ext: more than %d headers", maxExtensions)
		}
		for range n {
			chain = append(chain, ext)
		}
	}
	return chain, nil
}

func parseExtension(word string) (extension, error) {
	name, arg, hasArg := strings.Cut(word, ":")
	switch name {
	case "hbh", "dst":
		size := uint64(8)
		if hasArg {
			var err error
			if size, err = strconv.ParseUint(arg, 10, 12); err != nil || size%8 != 0 || size == 0 || size > 256 {
				return extension{}, fmt.Errorf("a size is a multiple of 8, 8 to 256")
			}
		}
		return optionsHeader(name == "hbh", int(size)), nil
	case "rt":
		kind, left, hasLeft := strings.Cut(arg, ":")
		if !hasLeft {
			left = "1"
		}
		k, err1 := strconv.ParseUint(kind, 10, 8)
		l, err2 := strconv.ParseUint(left, 10, 8)
		if err1 != nil || err2 != nil {
			return extension{}, fmt.Errorf("want rt:TYPE or rt:TYPE:LEFT, 0 to 255 each")
		}
		return routingHeader(byte(k), byte(l)), nil
	case "frag":
		return parseFragment(arg)
	}
	kind, err := strconv.ParseUint(strings.TrimPrefix(name, "x"), 10, 8)
	data, err2 := hex.DecodeString(arg)
	if !strings.HasPrefix(name, "x") || err != nil || err2 != nil || len(data) < 1 || len(data) > 2048 {
		return extension{}, fmt.Errorf("want hbh, dst, rt:TYPE, frag:OFFSET or xTYPE:BYTES")
	}
	data[0] = 0
	return extension{byte(kind), data}, nil
}

func parseFragment(arg string) (extension, error) {
	arg, id, hasID := strings.Cut(arg, ":")
	if !hasID {
		id = "0"
	}
	arg, more := strings.CutSuffix(arg, "+")
	offset, err1 := strconv.ParseUint(arg, 10, 16)
	n, err2 := strconv.ParseUint(id, 10, 32)
	if err1 != nil || err2 != nil || offset%8 != 0 {
		return extension{}, fmt.Errorf("want frag:OFFSET, frag:OFFSET+ or frag:OFFSET:ID; an offset is a multiple of 8 below 65536")
	}
	if more {
		offset |= 1
	}
	data := make([]byte, 8)
	binary.BigEndian.PutUint16(data[2:], uint16(offset))
	binary.BigEndian.PutUint32(data[4:], uint32(n))
	return extension{extFragment, data}, nil
}

func optionsHeader(hopByHop bool, size int) extension {
	kind := byte(extOptions)
	if hopByHop {
		kind = extHopByHop
	}
	data := make([]byte, size)
	data[1] = byte(size/8 - 1)
	for at := 2; at < size; { // PadN holds at most 255 bytes of padding
		n := min(size-at, 257)
		data[at], data[at+1] = 1, byte(n-2)
		at += n
	}
	return extension{kind, data}
}

func routingHeader(kind, left byte) extension {
	data := make([]byte, 24)
	data[1], data[2], data[3] = 2, kind, left
	copy(data[8:], "\x20\x01\x0d\xb8\xff\xff") // 2001:db8:ffff::1, the hop it names
	data[23] = 1
	return extension{extRouting, data}
}

func (e extension) String() string {
	same := func(word string) bool {
		f, err := parseExtension(word)
		return err == nil && f.kind == e.kind && string(f.data) == string(e.data)
	}
	var word string
	switch {
	case e.kind == extHopByHop:
		word = fmt.Sprintf("hbh:%d", len(e.data))
	case e.kind == extOptions:
		word = fmt.Sprintf("dst:%d", len(e.data))
	case e.kind == extRouting && len(e.data) >= 4:
		word = fmt.Sprintf("rt:%d:%d", e.data[2], e.data[3])
	case e.kind == extFragment && len(e.data) == 8:
		offset, id := binary.BigEndian.Uint16(e.data[2:]), binary.BigEndian.Uint32(e.data[4:])
		word = fmt.Sprintf("frag:%d%s", offset&^7, map[bool]string{true: "+"}[offset&1 != 0])
		if id != 0 {
			word += fmt.Sprintf(":%d", id)
		}
	}
	short := strings.TrimSuffix(word, ":8") // of hbh and dst
	if e.kind == extRouting {
		short = strings.TrimSuffix(word, ":1")
	}
	for _, w := range []string{short, word} {
		if w != "" && same(w) {
			return w
		}
	}
	return fmt.Sprintf("x%d:%x", e.kind, e.data)
}

func formatExt(chain []extension) string {
	var words []string
	for _, e := range chain {
		words = append(words, e.String())
	}
	return strings.Join(words, ",")
}

// encodeExt puts the chain in front of the protocol last; first is the IPv6 header's next header.
func encodeExt(chain []extension, last byte) (first byte, b []byte) {
	first = last
	if len(chain) > 0 {
		first = chain[0].kind
	}
	for i, e := range chain {
		at := len(b)
		b = append(b, e.data...)
		b[at] = last
		if i+1 < len(chain) {
			b[at] = chain[i+1].kind
		}
	}
	return first, b
}

// cutExt cuts extension headers off b. It stops after a fragment header of a later fragment, and
// before a truncated header.
func cutExt(first byte, b []byte) (chain []extension, next byte, rest []byte) {
	next = first
	for len(chain) < 32 && len(b) >= 8 {
		size := 8
		switch next {
		case extHopByHop, extOptions, extRouting:
			size = 8 * (int(b[1]) + 1)
		case extFragment:
		default:
			return chain, next, b
		}
		if len(b) < size {
			return chain, next, b
		}
		e := extension{next, append([]byte(nil), b[:size]...)}
		next, e.data[0] = b[0], 0
		b = b[size:]
		chain = append(chain, e)
		if e.kind == extFragment && binary.BigEndian.Uint16(e.data[2:])&^7 != 0 {
			break
		}
	}
	return chain, next, b
}

// isLaterFragment reports whether the chain ends in a fragment header of another fragment than the
// first.
func isLaterFragment(chain []extension) bool {
	if len(chain) == 0 {
		return false
	}
	last := chain[len(chain)-1]
	return last.kind == extFragment && binary.BigEndian.Uint16(last.data[2:])&^7 != 0
}
