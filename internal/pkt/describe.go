package pkt

import "slices"

// Describe formats a packet for people; begin may be only its beginning. Usual and derived values
// are omitted, for TCP also window and options unless all is set. length is the length of the whole
// packet; layer3: begin starts with its IP header. Incomplete data is omitted.
func Describe(begin []byte, length int, layer3, all bool) (line string, data []byte) {
	frame, frameLength := begin, length
	if layer3 {
		frame, frameLength = asFrame(begin), length+ethernetHeader
	}
	missing := max(0, frameLength-len(frame))
	p := Decode(append(slices.Clip(frame), letters(missing)...))
	data = p.shorten(missing, all)
	if layer3 {
		p.Unset(From).Unset(To)
	}
	return p.String(), data
}

const ethernetHeader = 14

// asFrame prepends a link-layer header to an IP packet.
func asFrame(ip []byte) []byte {
	kind := uint16(typeIPv4)
	if len(ip) > 0 && ip[0]>>4 == 6 {
		kind = typeIPv6
	}
	return append(append(make([]byte, ethernetHeader-2, ethernetHeader+len(ip)), byte(kind>>8), byte(kind)), ip...)
}

// shorten removes less interesting fields. missing bytes at the end were filled in, so a checksum
// over them is meaningless; it returns the real part of the data.
func (p *Packet) shorten(missing int, all bool) (part []byte) {
	if v, stated := p.values[Sum]; missing > 0 || stated && v.Text == "partial" {
		p.Unset(Sum).Unset(CRC)
	}
	for f := range fields {
		if v, ok := p.values[f]; ok && v.Num == f.spec().def && f.spec().kind != kindSum && f.optional() && v.Text == "" {
			p.Unset(f)
		}
	}
	if data, ok := p.values[Data]; ok && p.Proto != Raw && missing > 0 {
		p.Unset(Data).SetNum(Len, uint64(len(data.Text)))
		part = []byte(data.Text[:max(0, len(data.Text)-missing)])
	}
	if p.Num(Flags)&FlagACK == 0 {
		p.Unset(Ack)
	}
	if !all {
		p.Unset(From).Unset(To).Unset(IPID).Unset(Win).Unset(TCPOptions).Unset(TOS).Unset(Flow).Unset(Pad).Unset(DF)
	}
	if p.Inner != nil {
		part = append(part, p.Inner.shorten(missing, all)...)
	}
	return part
}

// optional reports whether a field with its usual value is left out.
func (f Field) optional() bool {
	switch f {
	case TOS, Flow, Urg, MTU, Pad, IPID, Len:
		return true
	}
	return false
}
