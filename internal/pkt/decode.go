package pkt

import (
	"bytes"
	"encoding/binary"
	"net/netip"
)

// Decode parses the bytes of a frame into a packet, from which Build makes the same bytes. It
// decodes as many layers as possible: a layer that the language cannot express becomes data of the
// layer before, at worst `raw`. A wrong checksum or length is stated; a correct one is not.
func Decode(frame []byte) *Packet {
	for _, deep := range []depth{toTransport, toIP, toEthernet} {
		if p := decodeFrame(frame, deep); p != nil && bytes.Equal(p.Build(), frame) {
			return p
		}
	}
	return New(Raw).Set(Data, Value{Text: string(frame)})
}

// depth is the decoder's depth; an attempt that does not build the same bytes is repeated with less
// depth.
type depth int

const (
	toEthernet depth = iota
	toIP
	toTransport
)

func decodeFrame(frame []byte, deep depth) *Packet {
	if len(frame) < 14 {
		return nil
	}
	tags, rest := cutVLAN(frame[12:])
	kind, body := binary.BigEndian.Uint16(rest), rest[2:]
	p := decodeBody(kind, body, deep)
	if p == nil {
		p = New(Eth).SetNum(EtherType, uint64(kind)).setPayload(body)
	} else if kind != p.etherType() {
		p.SetNum(EtherType, uint64(kind))
	}
	p.Set(To, MAC(frame[:6])).Set(From, MAC(frame[6:12]))
	if len(tags) > 0 {
		p.Set(VLAN, Value{Text: formatVLAN(tags)})
	}
	return p
}

func decodeBody(kind uint16, body []byte, deep depth) *Packet {
	switch {
	case deep == toEthernet:
		return nil
	case kind == typeIPv4:
		return decodeIPv4(body, deep)
	case kind == typeIPv6:
		return decodeIPv6(body, deep)
	}
	return nil
}

// setPayload states the bytes after the last header.
func (p *Packet) setPayload(b []byte) *Packet {
	if bytes.Equal(b, letters(len(b))) {
		return p.SetNum(Len, uint64(len(b)))
	}
	return p.Set(Data, Value{Text: string(b)})
}

// setIf states a number if it does not follow from the rest.
func (p *Packet) setIf(f Field, got, derived uint64) {
	if got != derived {
		p.SetNum(f, got)
	}
}

// setNonzero states a number when it is not zero.
func (p *Packet) setNonzero(f Field, n uint64) { p.setIf(f, n, 0) }

func decodeIPv4(b []byte, deep depth) *Packet {
	if len(b) < 20 {
		return nil
	}
	size := int(b[0]&15) * 4
	if size < 20 || size > len(b) {
		return nil
	}
	total := int(binary.BigEndian.Uint16(b[2:]))
	pad := 0
	if total >= size && total < len(b) {
		b, pad = b[:total], len(b)-total
	}
	fragment := binary.BigEndian.Uint16(b[6:])
	src, dst := netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	if fragment&0x1fff != 0 {
		deep = min(deep, toIP)
	}
	p := decodeTransport(src, dst, b[9], b[size:], deep)
	p.setIf(Version, uint64(b[0]>>4), 4)
	p.setIf(IPLen, uint64(total), uint64(len(b)))
	p.setNonzero(Pad, uint64(pad))
	p.SetNum(TOS, uint64(b[1])).SetNum(TTL, uint64(b[8])).SetNum(IPID, uint64(binary.BigEndian.Uint16(b[4:])))
	p.setNonzero(Frag, uint64(fragment&0x1fff)*8)
	if fragment&0x2000 != 0 {
		p.Set(MF, Value{})
	}
	if fragment&0x4000 != 0 {
		p.Set(DF, Value{})
	}
	if size > 20 {
		p.Set(IPOptions, Value{Text: string(b[20:size])})
	}
	header := bytes.Clone(b[:size])
	header[10], header[11] = 0, 0
	if v, wrong := checksums(0, header, false).explain(binary.BigEndian.Uint16(b[10:])); wrong {
		p.Set(IPSum, v)
	}
	return p
}

func decodeIPv6(b []byte, deep depth) *Packet {
	if len(b) < 40 {
		return nil
	}
	total := 40 + int(binary.BigEndian.Uint16(b[4:]))
	pad := 0
	if total < len(b) {
		b, pad = b[:total], len(b)-total
	}
	src, dst := netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	chain, next, rest := cutExt(b[6], b[40:])
	if isLaterFragment(chain) {
		deep = min(deep, toIP)
	}
	p := decodeTransport(src, dst, next, rest, deep)
	p.setIf(Version, uint64(b[0]>>4), 6)
	p.setIf(IPLen, uint64(total-40), uint64(len(b)-40))
	p.setNonzero(Pad, uint64(pad))
	word := binary.BigEndian.Uint32(b)
	p.SetNum(TOS, uint64(word>>20&0xff)).SetNum(Flow, uint64(word&0xfffff)).SetNum(TTL, uint64(b[7]))
	if len(chain) > 0 {
		p.Set(Ext, Value{Text: formatExt(chain)})
	}
	return p
}

// decodeTransport decodes the content of an IP packet.
func decodeTransport(src, dst netip.Addr, protocol byte, b []byte, deep depth) *Packet {
	var p *Packet
	if deep >= toTransport {
		switch {
		case protocol == protoTCP:
			p = decodeTCP(b)
		case protocol == protoUDP:
			p = decodeUDP(b)
		case protocol == protoSCTP:
			p = decodeSCTP(b)
		case protocol == protoICMP && src.Is4():
			p = decodeICMP(ICMP, b)
		case protocol == protoICMP6 && src.Is6():
			p = decodeICMP(ICMP6, b)
		case protocol == protoIPv4 || protocol == protoIPv6:
			p = decodeTunnel(protocol, b)
		}
	}
	if p == nil {
		p = New(IP).SetNum(Protocol, uint64(protocol)).setPayload(b)
	}
	p.Set(Src, Addr(src)).Set(Dst, Addr(dst))
	if at, ok := map[Proto]int{TCP: 16, UDP: 6, ICMP: 2, ICMP6: 2}[p.Proto]; ok {
		zeroed := bytes.Clone(b)
		zeroed[at], zeroed[at+1] = 0, 0
		if v, wrong := p.sums(zeroed).explain(binary.BigEndian.Uint16(b[at:])); wrong {
			p.Set(Sum, v)
		}
	}
	return p
}

func decodeTCP(b []byte) *Packet {
	if len(b) < 20 {
		return nil
	}
	size := int(b[12]>>4) * 4
	p := New(TCP)
	if size < 20 || size > len(b) {
		p.SetNum(DataOffset, uint64(b[12]>>4))
		size = 20
	}
	p.decodePorts(b)
	p.SetNum(Seq, uint64(binary.BigEndian.Uint32(b[4:]))).SetNum(Ack, uint64(binary.BigEndian.Uint32(b[8:])))
	p.SetNum(Flags, uint64(b[13])).SetNum(Win, uint64(binary.BigEndian.Uint16(b[14:])))
	p.SetNum(Urg, uint64(binary.BigEndian.Uint16(b[18:])))
	if size > 20 {
		p.Set(TCPOptions, Value{Text: decodeTCPOpt(b[20:size])})
	}
	return p.setPayload(b[size:])
}

func decodeUDP(b []byte) *Packet {
	if len(b) < 8 {
		return nil
	}
	p := New(UDP)
	p.decodePorts(b)
	p.setIf(UDPLen, uint64(binary.BigEndian.Uint16(b[4:])), uint64(len(b)))
	return p.setPayload(b[8:])
}

func (p *Packet) decodePorts(b []byte) {
	p.SetNum(SrcPort, uint64(binary.BigEndian.Uint16(b))).SetNum(DstPort, uint64(binary.BigEndian.Uint16(b[2:])))
}

func decodeICMP(proto Proto, b []byte) *Packet {
	if len(b) < 8 {
		return nil
	}
	p := New(proto).SetNum(Type, uint64(b[0])).SetNum(Code, uint64(b[1]))
	if isEcho(proto, b[0]) {
		p.SetNum(EchoID, uint64(binary.BigEndian.Uint16(b[4:]))).SetNum(EchoSeq, uint64(binary.BigEndian.Uint16(b[6:])))
	} else {
		p.SetNum(MTU, uint64(binary.BigEndian.Uint32(b[4:])))
	}
	if quotes(proto, b[0]) {
		if p.Inner = decodeInner(b[8:]); p.Inner != nil {
			return p
		}
	}
	return p.setPayload(b[8:])
}

func decodeTunnel(protocol byte, b []byte) *Packet {
	inner := decodeInner(b)
	if inner == nil || inner.Is6() != (protocol == protoIPv6) {
		return nil
	}
	p := New(IP).SetNum(Protocol, uint64(protocol))
	p.Inner = inner
	return p
}

// decodeInner decodes an IP packet inside another, or returns nil if the language cannot express
// it. Packets inside of that stay data, which bounds the work.
func decodeInner(b []byte) *Packet {
	if len(b) < 20 {
		return nil
	}
	kind := uint16(typeIPv4)
	if b[0]>>4 == 6 {
		kind = typeIPv6
	}
	for _, deep := range []depth{toTransport, toIP} {
		if p := decodeBody(kind, b, deep); p != nil && p.Inner == nil && bytes.Equal(p.BuildIP(), b) {
			return p
		}
	}
	return nil
}
