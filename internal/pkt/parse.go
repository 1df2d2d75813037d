package pkt

import (
	"encoding/hex"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// maxData limits the bytes that a line writes out.
const maxData = 65535

// Parse reads one line.
func Parse(line string) (*Packet, error) {
	parts := strings.Split(line, " / ")
	if len(parts) > 4 {
		return nil, fmt.Errorf("packet %q: nested more than 4 deep", line)
	}
	var p *Packet
	for _, part := range slices.Backward(parts) {
		outer, err := parsePart(part)
		if err != nil {
			return nil, fmt.Errorf("packet %q: %w", strings.TrimSpace(part), err)
		}
		outer.Inner, p = p, outer
	}
	for q := p; q.Inner != nil; q = q.Inner {
		if in := q.Inner.Proto; in == Raw || in == Eth || !(q.Proto == IP || q.Proto == ICMP || q.Proto == ICMP6) {
			return nil, fmt.Errorf("packet %q: %s carries no %s packet", line, q.Proto, in)
		}
		if q.Has(Len) || q.Has(Data) {
			return nil, fmt.Errorf("packet %q: len and data do not go with an inner packet", line)
		}
	}
	return p, nil
}

// parser is the parser of one part's words.
type parser struct {
	p     *Packet
	words []string
}

func parsePart(text string) (*Packet, error) {
	ps := &parser{words: strings.Fields(text)}
	name := ps.next()
	for proto := range protos {
		if proto.String() == name {
			ps.p = New(proto)
		}
	}
	if ps.p == nil {
		return nil, fmt.Errorf("%q is not a protocol: want tcp, udp, sctp, icmp, icmp6, ip, eth or raw", name)
	}
	if err := ps.head(); err != nil {
		return nil, err
	}
	for len(ps.words) > 0 {
		if err := ps.field(ps.next()); err != nil {
			return nil, err
		}
	}
	if ps.p.Has(Len) && ps.p.Has(Data) {
		return nil, fmt.Errorf("len and data exclude each other")
	}
	if ps.p.Has(Chunks) && (ps.p.Has(Len) || ps.p.Has(Data)) {
		return nil, fmt.Errorf("chunks excludes len and data")
	}
	return ps.p, nil
}

// next reads a word; "" at the end.
func (ps *parser) next() string {
	if len(ps.words) == 0 {
		return ""
	}
	word := ps.words[0]
	ps.words = ps.words[1:]
	return word
}

// accept reads the next word if it is this one.
func (ps *parser) accept(word string) bool {
	if len(ps.words) == 0 || ps.words[0] != word {
		return false
	}
	ps.words = ps.words[1:]
	return true
}

// head reads the part before the named fields.
func (ps *parser) head() error {
	switch ps.p.Proto {
	case Raw:
		return ps.value(Data, ps.next())
	case Eth:
		return ps.value(EtherType, ps.next())
	}
	if err := ps.side(Src, SrcPort); err != nil {
		return err
	}
	if !ps.accept(">") {
		return fmt.Errorf("want SOURCE > DESTINATION")
	}
	if err := ps.side(Dst, DstPort); err != nil {
		return err
	}
	src, dst := ps.p.Value(Src).Addr, ps.p.Value(Dst).Addr
	if src.IsValid() && dst.IsValid() && src.Is6() != dst.Is6() {
		return fmt.Errorf("source %s and destination %s are of different families", src, dst)
	}
	for _, a := range []netip.Addr{src, dst} {
		if a.IsValid() && (ps.p.Proto == ICMP && a.Is6() || ps.p.Proto == ICMP6 && a.Is4()) {
			return fmt.Errorf("%s does not run over the IP version of %s", ps.p.Proto, a)
		}
	}
	ps.flagsOrMessage()
	return nil
}

// flagsOrMessage reads the TCP flags or the name of the ICMP message, if the next word is one.
func (ps *parser) flagsOrMessage() {
	if len(ps.words) == 0 {
		return
	}
	switch ps.p.Proto {
	case TCP:
		if n, ok := parseFlags(ps.words[0]); ok {
			ps.next()
			ps.p.SetNum(Flags, n)
		}
	case ICMP, ICMP6:
		for n := min(2, len(ps.words)); n > 0; n-- {
			if m, ok := icmpNamed(ps.p.Proto, strings.Join(ps.words[:n], " ")); ok {
				ps.words = ps.words[n:]
				ps.p.SetNum(Type, uint64(m.kind)).SetNum(Code, uint64(m.code))
				return
			}
		}
	}
}

// parseFlags parses flags in any order; `-` is none.
func parseFlags(word string) (n uint64, ok bool) {
	if word == "-" {
		return 0, true
	}
	for _, c := range word {
		i := strings.IndexRune(flagLetters, c)
		if i < 0 {
			return 0, false
		}
		n |= 1 << i
	}
	return n, word != ""
}

// side reads an address, and its port where the protocol has one.
func (ps *parser) side(addr, port Field) error {
	word := ps.next()
	if !ps.p.Proto.has(port) {
		return ps.addr(addr, word)
	}
	host, number, err := net.SplitHostPort(word)
	if err != nil {
		return fmt.Errorf("%s %q: want ADDRESS:PORT, or [ADDRESS]:PORT for IPv6", addr, word)
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() != strings.HasPrefix(word, "[") {
		return fmt.Errorf("%s %q: brackets go around IPv6 addresses, and only around them", addr, word)
	}
	if err := ps.addr(addr, host); err != nil {
		return err
	}
	switch {
	case number == "*":
		if ps.accept("as") {
			return ps.bind(port)
		}
	case isName(number):
		ps.p.Set(port, Value{Var: number})
	default:
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return fmt.Errorf("%s %q: a port is 0 to 65535, * or a NAME", port, number)
		}
		ps.p.SetNum(port, n)
	}
	return nil
}

// bind reads the name that a match binds to the field's value.
func (ps *parser) bind(f Field) error {
	name := ps.next()
	if !isName(name) {
		return fmt.Errorf("as %q: a name is capital letters and digits, a letter first", name)
	}
	ps.p.Set(f, Value{Bind: name})
	return nil
}

func (ps *parser) addr(f Field, word string) error {
	if word == "*" {
		return nil
	}
	a, err := netip.ParseAddr(word)
	if err != nil || a.Zone() != "" {
		return fmt.Errorf("%s %q is not an IP address", f, word)
	}
	ps.p.Set(f, Value{Addr: a})
	return nil
}

// isName reports whether a word is the name of a port or a number.
func isName(s string) bool {
	for i, c := range s {
		if !(c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return s != "" && len(s) <= 32
}

// field reads one named field.
func (ps *parser) field(name string) error {
	f, ok := ps.p.Proto.fieldNamed(name)
	if !ok || f.spec().kind == kindAddr || f.spec().kind == kindPort {
		return fmt.Errorf("%s has no field %q", ps.p.Proto, name)
	}
	known := ps.p.Value(Src).Addr.IsValid() || ps.p.Value(Dst).Addr.IsValid() || ps.p.Proto == ICMP || ps.p.Proto == ICMP6
	if family := f.spec().family; known && family != 0 && (family == 6) != ps.p.Is6() {
		return fmt.Errorf("%s is a field of IPv%d", f, family)
	}
	if ps.p.Has(f) {
		return fmt.Errorf("%s is stated twice", f)
	}
	if f.spec().kind == kindFlag {
		ps.p.Set(f, Value{})
		return nil
	}
	if f == Seq || f == Ack {
		switch {
		case ps.accept("*"):
			if !ps.accept("as") {
				return fmt.Errorf("%s *: want * as NAME", f)
			}
			return ps.bind(f)
		case len(ps.words) > 0 && isName(ps.words[0]):
			ps.p.Set(f, Value{Var: ps.next()})
			return nil
		}
	}
	return ps.value(f, ps.next())
}

// value reads the value of a field.
func (ps *parser) value(f Field, word string) error {
	v, err := parseValue(f, word)
	if err != nil {
		return err
	}
	ps.p.Set(f, v)
	return nil
}

func parseValue(f Field, word string) (Value, error) {
	s := f.spec()
	switch s.kind {
	case kindFlags:
		n, ok := parseFlags(word)
		if !ok {
			return Value{}, fmt.Errorf("flags %q: want letters of %s, or -", word, flagLetters)
		}
		return Value{Num: n}, nil
	case kindMAC:
		mac, err := net.ParseMAC(word)
		if err != nil || len(mac) != 6 {
			return Value{}, fmt.Errorf("%s %q is not a MAC address", f, word)
		}
		var n uint64
		for _, b := range mac {
			n = n<<8 | uint64(b)
		}
		return Value{Num: n}, nil
	case kindBytes:
		b, err := hex.DecodeString(word)
		if word == "-" {
			b, err = nil, nil
		}
		if word == "" || err != nil || len(b) > maxData {
			return Value{}, fmt.Errorf("%s: %.20q is not an even number of hexadecimal digits", f, word)
		}
		if f == IPOptions && (len(b) > 40 || len(b)%4 != 0) {
			return Value{}, fmt.Errorf("%s: want at most 40 bytes, a multiple of 4", f)
		}
		return Value{Text: string(b)}, nil
	case kindVLAN, kindExt, kindTCPOpt, kindChunks:
		text, err := canonicalList(s.kind, word)
		return Value{Text: text}, err
	case kindSum:
		if word == "bad" || word == "zero" || word == "partial" || word == "right" {
			return Value{Text: word}, nil
		}
	}
	n, err := strconv.ParseUint(word, 0, 64)
	if err != nil || bits.Len64(n) > int(s.bits) {
		return Value{}, fmt.Errorf("%s %q: want a number of at most %d bits", f, word, s.bits)
	}
	if f == Frag && n%8 != 0 {
		return Value{}, fmt.Errorf("%s %d: an offset is a multiple of 8", f, n)
	}
	return Value{Num: n}, nil
}

func canonicalList(k kind, word string) (string, error) {
	switch k {
	case kindVLAN:
		tags, err := parseVLAN(word)
		return formatVLAN(tags), err
	case kindExt:
		chain, err := parseExt(word)
		return formatExt(chain), err
	case kindChunks:
		_, err := encodeChunks(word)
		return word, err
	default:
		if word == "-" {
			return "", nil
		}
		_, err := encodeTCPOpt(word)
		return word, err
	}
}
