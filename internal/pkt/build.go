package pkt

import (
	"encoding/binary"
)

const (
	protoICMP  = 1
	protoIPv4  = 4
	protoTCP   = 6
	protoUDP   = 17
	protoIPv6  = 41
	protoICMP6 = 58
	protoNone  = 59
	protoSCTP  = 132

	maxBuilt = 1 << 18 // no field can ask for more
)

// Build returns the bytes of the packet, starting with the Ethernet header. Port names must be
// resolved first: an unresolved name stands for the default port.
func (p *Packet) Build() []byte {
	if p.Proto == Raw {
		return []byte(p.Value(Data).Text)
	}
	b := appendMAC(make([]byte, 0, 128), p.Num(To))
	b = appendMAC(b, p.Num(From))
	if p.Has(VLAN) {
		tags, _ := parseVLAN(p.Value(VLAN).Text) // Parse and Decode accept nothing else
		b = appendVLAN(b, tags)
	}
	b = binary.BigEndian.AppendUint16(b, p.etherType())
	if p.Proto == Eth {
		b = append(b, p.payload()...)
	} else {
		b = append(b, p.ip()...)
		b = append(b, make([]byte, p.Num(Pad))...)
	}
	return p.truncate(b)
}

// Offset returns the offset of the transport header in Build's result, or of the payload if the
// packet has no such header.
func (p *Packet) Offset() int {
	if p.Proto == Raw || p.Proto == Eth {
		return 0
	}
	tags, _ := parseVLAN(p.Value(VLAN).Text) // without tags it returns an error and no tag
	return 14 + 4*len(tags) + len(p.ip()) - len(p.transport())
}

// BuildIP returns the bytes of the packet from its IP header on, or nil if it is not an IP packet.
func (p *Packet) BuildIP() []byte {
	if p.Proto == Raw || p.Proto == Eth {
		return nil
	}
	return p.truncate(p.ip())
}

func (p *Packet) truncate(b []byte) []byte {
	if p.Has(Trunc) && int(p.Num(Trunc)) < len(b) {
		return b[:p.Num(Trunc)]
	}
	return b
}

func appendMAC(b []byte, mac uint64) []byte {
	return append(b, byte(mac>>40), byte(mac>>32), byte(mac>>24), byte(mac>>16), byte(mac>>8), byte(mac))
}

func (p *Packet) etherType() uint16 {
	switch {
	case p.Has(EtherType):
		return uint16(p.Num(EtherType))
	case p.Is6():
		return typeIPv6
	}
	return typeIPv4
}

// payload returns the bytes after the last header: an inner packet, data as stated, or len
// letters.
func (p *Packet) payload() []byte {
	switch {
	case p.Inner != nil:
		return p.Inner.BuildIP()
	case p.Has(Data):
		return []byte(p.Value(Data).Text)
	}
	return letters(int(p.Num(Len)))
}

// letters returns the payload of a packet that states only its length: abc...zabc... so that a byte
// at the wrong place is seen.
func letters(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte(i%26)
	}
	return b
}

// ip builds the IP packet in its full length.
func (p *Packet) ip() []byte {
	upper := p.transport()
	if p.Is6() {
		return p.ipv6(upper)
	}
	return p.ipv4(upper)
}

func (p *Packet) ipv4(upper []byte) []byte {
	options := p.Value(IPOptions).Text
	size := 20 + len(options)
	b := make([]byte, size, min(size+len(upper), maxBuilt))
	ihl, version, total := uint64(size/4), uint64(4), uint64(size+len(upper))
	b[0] = byte(p.or(Version, version)<<4 | p.or(IHL, ihl))
	b[1] = byte(p.Num(TOS))
	binary.BigEndian.PutUint16(b[2:], uint16(p.or(IPLen, total)))
	binary.BigEndian.PutUint16(b[4:], uint16(p.Num(IPID)))
	fragment := uint16(p.Num(Frag) / 8)
	if p.Has(MF) {
		fragment |= 0x2000
	}
	if p.Has(DF) {
		fragment |= 0x4000
	}
	binary.BigEndian.PutUint16(b[6:], fragment)
	b[8], b[9] = byte(p.Num(TTL)), p.protocol()
	copy(b[12:], p.address(Src).AsSlice())
	copy(b[16:], p.address(Dst).AsSlice())
	copy(b[20:], options)
	v, stated := p.values[IPSum]
	binary.BigEndian.PutUint16(b[10:], checksums(0, b, false).value(v, stated))
	return append(b, upper...)
}

func (p *Packet) ipv6(upper []byte) []byte {
	var chain []extension
	if p.Has(Ext) {
		chain, _ = parseExt(p.Value(Ext).Text) // Parse and Decode accept nothing else
	}
	first, ext := encodeExt(chain, p.protocol())
	b := make([]byte, 40, min(40+len(ext)+len(upper), maxBuilt))
	binary.BigEndian.PutUint32(b, uint32(p.or(Version, 6)<<28|p.Num(TOS)<<20|p.Num(Flow)))
	binary.BigEndian.PutUint16(b[4:], uint16(p.or(IPLen, uint64(len(ext)+len(upper)))))
	b[6], b[7] = first, byte(p.Num(TTL))
	copy(b[8:], p.address(Src).AsSlice())
	copy(b[24:], p.address(Dst).AsSlice())
	b = append(b, ext...)
	return append(b, upper...)
}

// or returns the stated value of a derived field, or otherwise the derived one.
func (p *Packet) or(f Field, derived uint64) uint64 {
	if v, ok := p.values[f]; ok {
		return v.Num
	}
	return derived
}

// protocol returns the number in the IP header (or in the last extension header).
func (p *Packet) protocol() byte {
	switch p.Proto {
	case TCP:
		return protoTCP
	case UDP:
		return protoUDP
	case SCTP:
		return protoSCTP
	case ICMP:
		return protoICMP
	case ICMP6:
		return protoICMP6
	}
	switch {
	case p.Has(Protocol) || p.Inner == nil:
		return byte(p.Num(Protocol))
	case p.Inner.Is6():
		return protoIPv6
	}
	return protoIPv4
}

// transport returns the content of the IP packet.
func (p *Packet) transport() []byte {
	switch p.Proto {
	case TCP:
		return p.tcp()
	case UDP:
		return p.udp()
	case SCTP:
		return p.sctp()
	case ICMP, ICMP6:
		return p.icmp()
	}
	return p.payload()
}

func (p *Packet) tcp() []byte {
	var options []byte
	if p.Has(TCPOptions) {
		options, _ = encodeTCPOpt(p.Value(TCPOptions).Text) // Parse and Decode accept nothing else
		options = fillTCPOpt(options)
	}
	b := make([]byte, 20, 20+len(options))
	p.ports(b)
	binary.BigEndian.PutUint32(b[4:], uint32(p.Num(Seq)))
	binary.BigEndian.PutUint32(b[8:], uint32(p.Num(Ack)))
	b[12] = byte(p.or(DataOffset, uint64(5+len(options)/4)) << 4)
	b[13] = byte(p.Num(Flags))
	binary.BigEndian.PutUint16(b[14:], uint16(p.Num(Win)))
	binary.BigEndian.PutUint16(b[18:], uint16(p.Num(Urg)))
	b = append(append(b, options...), p.payload()...)
	return p.finish(b, 16)
}

func (p *Packet) udp() []byte {
	b := make([]byte, 8)
	p.ports(b)
	b = append(b, p.payload()...)
	binary.BigEndian.PutUint16(b[4:], uint16(p.or(UDPLen, uint64(len(b)))))
	return p.finish(b, 6)
}

func (p *Packet) icmp() []byte {
	b := make([]byte, 8)
	b[0], b[1] = p.icmpType(), byte(p.Num(Code))
	if isEcho(p.Proto, b[0]) {
		binary.BigEndian.PutUint16(b[4:], uint16(p.Num(EchoID)))
		binary.BigEndian.PutUint16(b[6:], uint16(p.Num(EchoSeq)))
	} else {
		binary.BigEndian.PutUint32(b[4:], uint32(p.Num(MTU)))
	}
	return p.finish(append(b, p.payload()...), 2)
}

func (p *Packet) ports(b []byte) {
	binary.BigEndian.PutUint16(b, uint16(p.Num(SrcPort)))
	binary.BigEndian.PutUint16(b[2:], uint16(p.Num(DstPort)))
}

// finish fills in the checksum of an otherwise complete header.
func (p *Packet) finish(b []byte, at int) []byte {
	v, stated := p.values[Sum]
	binary.BigEndian.PutUint16(b[at:], p.sums(b).value(v, stated))
	return b
}

// sums computes the checksums of a transport header and its content, with a zero checksum field.
func (p *Packet) sums(b []byte) sums {
	pseudo := pseudoHeader(p.address(Src), p.address(Dst), p.protocol(), len(b))
	if p.Proto == ICMP {
		pseudo = 0
	}
	return checksums(pseudo, b, p.Proto == UDP)
}
