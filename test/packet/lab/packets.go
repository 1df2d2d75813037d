package lab

import (
	"fmt"

	"loxilb/internal/pkt"
)

// Arriving completes a packet with the MAC addresses that it arrives with: the sender's, and the
// interface's own.
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

// Leaving returns the packet p after the translation that pattern describes. Fields that are not in
// pattern stay the same, except that TTL is one less and the MAC addresses are the next hop's. got
// is the packet that left; ports and numbers that pattern names are taken from it into vars. A
// pattern of another protocol than p is a whole packet, which the kernel sent because of p.
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
		return renumbered(pattern, p, pattern, got), nil
	}
	return n.hop(l, p, renumbered(p.Merge(pattern), p, pattern, got), pattern), nil
}

// renumbered gives out the identification of what really left, if that is some number.
func renumbered(out, p, change, got *pkt.Packet) *pkt.Packet {
	if numbered(p, got) && !change.Has(pkt.IPID) {
		return out.Clone().Set(pkt.IPID, got.Value(pkt.IPID))
	}
	return out
}

// numbered reports whether got became IPv4, and so has an identification that does not depend on p.
func numbered(p, got *pkt.Packet) bool {
	return got != nil && p.Is6() && got.Has(pkt.IPID) && !got.Is6() && !got.Has(pkt.MF) && !got.Has(pkt.Frag)
}

// hop makes the changes that every hop makes, unless change overrides them. A priority tag does not
// leave its link.
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

// Changes returns the pattern that Leaving makes got from: what really left, as short as a script
// states it.
func (n *Network) Changes(p, got *pkt.Packet, l *Link) *pkt.Packet {
	if got.Proto != p.Proto {
		if numbered(p, got) {
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
	want := pkt.Decode(n.hop(l, p, renumbered(p.Merge(change), p, change, got), change).Build())
	stateDifferent(change, want, got)
	if change.Inner != nil && want.Inner != nil {
		stateDifferent(change.Inner, want.Inner, got.Inner)
	}
	for _, f := range []pkt.Field{pkt.Sum, pkt.CRC, pkt.IPSum} {
		if want.Proto == got.Proto && want.Has(f) && !got.Has(f) {
			change.Set(f, pkt.Value{Text: "right"})
		}
	}
	return change
}

// stateDifferent states in change what got has and want has not.
func stateDifferent(change, want, got *pkt.Packet) {
	for f := pkt.Field(0); f.Known(); f++ {
		if got.Has(f) && (!want.Has(f) || want.Value(f) != got.Value(f)) {
			change.Set(f, got.Value(f))
		}
	}
}
