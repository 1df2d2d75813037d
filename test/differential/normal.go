package differential

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"loxilb/internal/pkt"
)

// normal returns p with the client's own port instead of the source port that a balancer has
// chosen, and without random numbers. A balancer's ports map one to one to clients' ports: if two
// connections shared a port, their answers would differ.
func (h *comparedStep) normal(p *pkt.Packet, o outcome) *pkt.Packet {
	p = p.Clone()
	for q := p; q != nil; q = q.Inner {
		rename(q, o.ends.source, h.flow.client.Port())
	}
	if isError(p) && !isError(h.packet) { // its own error: the number is random
		p.Unset(pkt.IPID)
	}
	if p.Value(pkt.Sum).Text == "partial" { // of the kernel's own, left to the device
		p.Unset(pkt.Sum)
	}
	if ext := p.Value(pkt.Ext).Text; strings.HasPrefix(ext, "frag:") {
		p.Set(pkt.Ext, pkt.Value{Text: h.renumber(ext, o)})
	}
	return p
}

// rename replaces the port of the source. If a packet is truncated, so its checksum cannot be
// computed, rename updates the checksum incrementally.
func rename(p *pkt.Packet, source netip.AddrPort, port uint16) {
	for _, f := range [][2]pkt.Field{{pkt.Src, pkt.SrcPort}, {pkt.Dst, pkt.DstPort}} {
		if p.Value(f[0]).Addr != source.Addr() || source.Port() == port {
			continue
		}
		if p.Proto == pkt.IP { // a quote that ends before its header does
			renameData(p, f[1], source.Port(), port)
			continue
		}
		if !p.Has(f[1]) || p.Num(f[1]) != uint64(source.Port()) {
			continue
		}
		p.SetNum(f[1], uint64(port))
		if v := p.Value(pkt.Sum); p.Has(pkt.Sum) && v.Text == "" {
			p.SetNum(pkt.Sum, uint64(adjust(uint16(v.Num), source.Port(), port)))
		}
	}
}

func renameData(p *pkt.Packet, f pkt.Field, from, to uint16) {
	data := []byte(p.Value(pkt.Data).Text)
	at := map[pkt.Field]int{pkt.SrcPort: 0, pkt.DstPort: 2}[f]
	if len(data) < at+2 || binary.BigEndian.Uint16(data[at:]) != from {
		return
	}
	binary.BigEndian.PutUint16(data[at:], to)
	sum := map[uint64]int{6: 16, 17: 6}[p.Num(pkt.Protocol)]
	if sum > 0 && len(data) >= sum+2 {
		binary.BigEndian.PutUint16(data[sum:], adjust(binary.BigEndian.Uint16(data[sum:]), from, to))
	}
	p.Set(pkt.Data, pkt.Value{Text: string(data)})
}

// adjust returns a checksum after a word that it covers has changed (RFC 1624).
func adjust(sum, from, to uint16) uint16 {
	acc := uint32(^sum) + uint32(^from) + uint32(to)
	acc = acc>>16 + acc&0xffff
	return ^uint16(acc>>16 + acc)
}

// renumber replaces the identification of an IPv6 datagram by that of the packet that arrived, if
// all fragments that left have it.
func (h *comparedStep) renumber(ext string, o outcome) string {
	number := func(p *pkt.Packet) string {
		words := strings.Split(p.Value(pkt.Ext).Text, ":")
		return words[len(words)-1]
	}
	own := number(o.left[0].packet)
	for _, s := range o.left {
		if number(s.packet) != own {
			return ext
		}
	}
	return strings.TrimSuffix(ext, own) + number(o.arrived[0])
}

func isError(p *pkt.Packet) bool { return p.Proto == pkt.ICMP || p.Proto == pkt.ICMP6 }
