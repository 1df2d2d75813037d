package pkt

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// String writes the packet as a line that Parse reads back to an equal packet.
func (p *Packet) String() string {
	words := []string{p.Proto.String()}
	switch p.Proto {
	case Raw:
		words = append(words, p.text(Data))
	case Eth:
		words = append(words, p.text(EtherType))
	default:
		words = append(words, p.side(Src, SrcPort), ">", p.side(Dst, DstPort))
	}
	named := p.icmpNamed()
	if p.Proto == TCP && p.Has(Flags) {
		words = append(words, p.text(Flags))
	}
	if named != "" {
		words = append(words, named)
	}
	for f := range fields {
		if !p.Has(f) || f.inHead(p.Proto) || named != "" && (f == Type || f == Code) {
			continue
		}
		words = append(words, f.String())
		if f.spec().kind != kindFlag {
			words = append(words, p.text(f))
		}
	}
	line := strings.Join(words, " ")
	if p.Inner != nil {
		line += " / " + p.Inner.String()
	}
	return line
}

// inHead reports whether the field is written before the named ones.
func (f Field) inHead(proto Proto) bool {
	switch f.spec().kind {
	case kindAddr, kindPort, kindFlags:
		return true
	}
	return proto == Raw && f == Data || proto == Eth && f == EtherType
}

// icmpNamed returns the words for the ICMP message, "" when there are none.
func (p *Packet) icmpNamed() string {
	if !p.Has(Type) || !p.Has(Code) {
		return ""
	}
	return icmpWords(p.Proto, p.Num(Type), p.Num(Code))
}

// side writes an address, and its port where the protocol has one.
func (p *Packet) side(addr, port Field) string {
	host := "*"
	if v, ok := p.values[addr]; ok {
		host = v.Addr.String()
		if v.Addr.Is6() && p.Proto.has(port) {
			host = "[" + host + "]"
		}
	}
	if !p.Proto.has(port) {
		return host
	}
	return host + ":" + p.text(port)
}

// text writes the value of a field; `*` for a port that is not stated.
func (p *Packet) text(f Field) string {
	v, ok := p.values[f]
	switch {
	case !ok && f.spec().kind == kindPort:
		return "*"
	case !ok && f == Data:
		return "-"
	}
	return v.format(f)
}

func (v Value) format(f Field) string {
	switch {
	case v.Bind != "":
		return "* as " + v.Bind
	case v.Var != "":
		return v.Var
	}
	switch f.spec().kind {
	case kindAddr:
		return v.Addr.String()
	case kindFlags:
		return FormatFlags(uint8(v.Num))
	case kindFlag:
		return "yes"
	case kindMAC:
		return formatMAC(v.Num)
	case kindBytes:
		if v.Text == "" {
			return "-"
		}
		return fmt.Sprintf("%x", v.Text)
	case kindHex:
		return fmt.Sprintf("%#x", v.Num)
	case kindSum:
		if v.Text == "" {
			return fmt.Sprintf("%#x", v.Num)
		}
		return v.Text
	case kindVLAN, kindExt, kindTCPOpt, kindChunks:
		if v.Text == "" {
			return "-"
		}
		return v.Text
	}
	return strconv.FormatUint(v.Num, 10)
}

// FormatFlags writes TCP flags as letters, `-` when there are none.
func FormatFlags(flags uint8) string {
	var b strings.Builder
	for i, c := range flagLetters {
		if flags&(1<<i) != 0 {
			b.WriteRune(c)
		}
	}
	if b.Len() == 0 {
		return "-"
	}
	return b.String()
}

func formatMAC(n uint64) string {
	var octets [6]string
	for i := range octets {
		octets[i] = fmt.Sprintf("%02x", byte(n>>(40-8*i)))
	}
	return strings.Join(octets[:], ":")
}

// MAC makes the Value of a MAC address; the zero Value for another length than 6.
func MAC(mac []byte) Value {
	var n uint64
	if len(mac) != 6 {
		return Value{}
	}
	for _, b := range mac {
		n = n<<8 | uint64(b)
	}
	return Value{Num: n}
}

// Addr makes the Value of an IP address.
func Addr(a netip.Addr) Value { return Value{Addr: a} }
