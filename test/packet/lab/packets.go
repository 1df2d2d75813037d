package lab

import (
	"fmt"

	"loxilb/internal/pkt"
)

// Arriving adds MAC addresses to a packet that arrives at a link: the sender's and the interface's.
func (n *Network) Arriving(l *Link, p *pkt.Packet) *pkt.Packet {
	p = p.Clone()
	if p.Proto == pkt.Raw {
		return p
	}
	if !p.Has(pkt.From) {
		if mac := n.NextHop(l, p.SrcAddr().Addr()); mac != nil {
			p.Set(pkt.From, pkt.MAC(mac))
		}
	}
	if !p.Has(pkt.To) {
		p.Set(pkt.To, pkt.MAC(l.MAC))
	}
	return p
}

// Leaving returns packet p after the translation that pattern describes. Fields that pattern lacks
// stay the same, except for the TTL, which is one less, and the MAC addresses of the next hop. got
// is the packet that has left: Leaving assigns its ports and numbers to the variables of pattern in
// vars. If pattern has another protocol than p, it is a whole packet that the kernel has sent
// because of p.
func (n *Network) Leaving(l *Link, p, pattern, got *pkt.Packet, vars pkt.Vars) (*pkt.Packet, error) {
	for _, f := range []pkt.Field{pkt.SrcPort, pkt.DstPort, pkt.Seq, pkt.Ack} {
		if v := pattern.Value(f); v.Bind == "" {
			continue
		} else if old, known := vars[v.Bind]; known && uint64(old) != got.Num(f) {
			return nil, fmt.Errorf("%s is %d, but %s is %d", f, got.Num(f), v.Bind, old)
		} else {
			vars[v.Bind] = uint32(got.Num(f))
			pattern = pattern.Clone().SetNum(f, got.Num(f))
		}
	}
	pattern, err := pattern.Resolve(vars)
	if err != nil {
		return nil, err
	}
	if p.Proto != pattern.Proto {
		return withIdentification(pattern, p, pattern, got), nil
	}
	return n.hop(l, p, withIdentification(p.Merge(pattern), p, pattern, got), pattern), nil
}

// withIdentification sets the identification of out to that of got if the program has chosen it.
func withIdentification(out, p, change, got *pkt.Packet) *pkt.Packet {
	if hasNewIdentification(p, got) && !change.Has(pkt.IPID) {
		return out.Clone().Set(pkt.IPID, got.Value(pkt.IPID))
	}
	return out
}

// hasNewIdentification reports whether got was translated to IPv4, so its identification does not
// depend on p.
func hasNewIdentification(p, got *pkt.Packet) bool {
	return got != nil && p.Is6() && got.Has(pkt.IPID) && !got.Is6() && !got.Has(pkt.MF) && !got.Has(pkt.Frag)
}

// hop makes the changes of every hop, unless change overrides them. It removes a priority tag.
func (n *Network) hop(l *Link, p, out, change *pkt.Packet) *pkt.Packet {
	if !change.Has(pkt.VLAN) {
		out.Unset(pkt.VLAN)
	}
	if !change.Has(pkt.TTL) {
		out.SetNum(pkt.TTL, (p.Num(pkt.TTL)-1)&0xff)
	}
	if !change.Has(pkt.From) {
		out.Set(pkt.From, pkt.MAC(l.MAC))
	}
	if mac := n.NextHop(l, out.DstAddr().Addr()); !change.Has(pkt.To) && mac != nil {
		out.Set(pkt.To, pkt.MAC(mac))
	}
	return out
}

// Changes returns the shortest pattern from which Leaving returns got, the packet that has left.
func (n *Network) Changes(p, got *pkt.Packet, l *Link) *pkt.Packet {
	if got.Proto != p.Proto {
		if hasNewIdentification(p, got) {
			got = got.Clone().Unset(pkt.IPID)
		}
		return got
	}
	change := pkt.New(got.Proto)
	for _, f := range []pkt.Field{pkt.Src, pkt.SrcPort, pkt.Dst, pkt.DstPort, pkt.Flags} {
		if got.Has(f) && (f != pkt.Flags || p.Has(f)) {
			change.Set(f, got.Value(f))
		}
	}
	if got.Inner != nil && p.Inner != nil && got.Inner.Proto == p.Inner.Proto {
		change.Inner = pkt.New(got.Inner.Proto)
		for _, f := range []pkt.Field{pkt.Src, pkt.SrcPort, pkt.Dst, pkt.DstPort} {
			if got.Inner.Has(f) {
				change.Inner.Set(f, got.Inner.Value(f))
			}
		}
	}
	want := pkt.Decode(n.hop(l, p, withIdentification(p.Merge(change), p, change, got), change).Build())
	addDifferences(change, want, got)
	if change.Inner != nil && want.Inner != nil {
		addDifferences(change.Inner, want.Inner, got.Inner)
	}
	for _, f := range []pkt.Field{pkt.Sum, pkt.CRC, pkt.IPSum} {
		if want.Proto == got.Proto && want.Has(f) && !got.Has(f) {
			change.Set(f, pkt.Value{Text: "right"})
		}
	}
	return change
}

// addDifferences adds the fields of got that differ from want to change.
func addDifferences(change, want, got *pkt.Packet) {
	for f := pkt.Field(0); f.Known(); f++ {
		if got.Has(f) && (!want.Has(f) || want.Value(f) != got.Value(f)) {
			change.Set(f, got.Value(f))
		}
	}
}
