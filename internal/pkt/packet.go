package pkt

import (
	"fmt"
	"maps"
	"net/netip"
)

// Value is the stated value of a field of a packet. The zero Value is a flag that is present, or
// the number 0. Only the members of the field's kind are set, so Values of one field compare with
// ==.
type Value struct {
	Num  uint64     // numbers, ports, flags, MAC addresses (48 bits), wrong sums
	Addr netip.Addr // addresses
	Text string     // bytes as they are; lists in their canonical form; "right", "bad", "zero", "partial"
	Bind string     // `* as P`: the name that a match binds to the port or the sequence number
	Var  string     // P: a bound name
}

// Packet is one line: the fields that it states. A Packet of Decode states every field that the
// bytes have.
type Packet struct {
	Proto  Proto
	values map[Field]Value
	Inner  *Packet // the packet that an ICMP error quotes or an IP tunnel carries; otherwise nil
}

// New returns a packet that states nothing.
func New(proto Proto) *Packet { return &Packet{Proto: proto, values: map[Field]Value{}} }

// Has reports whether the packet states the field.
func (p *Packet) Has(f Field) bool { _, ok := p.values[f]; return ok }

// Value returns the stated value, or the field's default.
func (p *Packet) Value(f Field) Value {
	if v, ok := p.values[f]; ok {
		return v
	}
	return Value{Num: f.spec().def}
}

// Num returns a number that the packet states, or the field's default.
func (p *Packet) Num(f Field) uint64 { return p.Value(f).Num }

// Set states a field.
func (p *Packet) Set(f Field, v Value) *Packet { p.values[f] = v; return p }

// SetNum states a field that is a number.
func (p *Packet) SetNum(f Field, n uint64) *Packet { return p.Set(f, Value{Num: n}) }

// Unset forgets a field.
func (p *Packet) Unset(f Field) *Packet { delete(p.values, f); return p }

// SrcAddr returns source address and port (0 where the protocol has none).
func (p *Packet) SrcAddr() netip.AddrPort {
	return netip.AddrPortFrom(p.address(Src), uint16(p.Num(SrcPort)))
}

// DstAddr returns destination address and port (0 where the protocol has none).
func (p *Packet) DstAddr() netip.AddrPort {
	return netip.AddrPortFrom(p.address(Dst), uint16(p.Num(DstPort)))
}

// SetSrc states source address and, where the protocol has one, port.
func (p *Packet) SetSrc(a netip.AddrPort) *Packet { return p.setAddr(Src, SrcPort, a) }

// SetDst states destination address and, where the protocol has one, port.
func (p *Packet) SetDst(a netip.AddrPort) *Packet { return p.setAddr(Dst, DstPort, a) }

func (p *Packet) setAddr(addr, port Field, a netip.AddrPort) *Packet {
	if p.Proto.has(port) {
		p.SetNum(port, uint64(a.Port()))
	}
	return p.Set(addr, Value{Addr: a.Addr()})
}

// Is6 reports whether the packet is IPv6, by an address or by the protocol.
func (p *Packet) Is6() bool {
	for _, f := range []Field{Src, Dst} {
		if v, ok := p.values[f]; ok && v.Addr.IsValid() {
			return v.Addr.Is6()
		}
	}
	return p.Proto == ICMP6
}

// address returns the address of a side, unspecified when it is not stated.
func (p *Packet) address(f Field) netip.Addr {
	if a := p.values[f].Addr; a.IsValid() {
		return a
	}
	if p.Is6() {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// Clone returns a copy that shares nothing.
func (p *Packet) Clone() *Packet {
	if p == nil {
		return nil
	}
	return &Packet{Proto: p.Proto, values: maps.Clone(p.values), Inner: p.Inner.Clone()}
}

// Equal reports whether both packets state the same values.
func (p *Packet) Equal(q *Packet) bool {
	if p == nil || q == nil {
		return p == q
	}
	return p.Proto == q.Proto && maps.Equal(p.values, q.values) && p.Inner.Equal(q.Inner)
}

// Merge returns a copy of p with the fields of change, such as p after its translation. Inner
// packets merge, too.
func (p *Packet) Merge(change *Packet) *Packet {
	out := p.Clone()
	if change == nil {
		return out
	}
	if out == nil || out.Proto != change.Proto {
		return change.Clone()
	}
	for f, v := range change.values {
		switch f {
		case Len:
			delete(out.values, Data)
			delete(out.values, Chunks)
		case Data:
			delete(out.values, Len)
			delete(out.values, Chunks)
		case Chunks:
			delete(out.values, Data)
			delete(out.values, Len)
		}
		out.values[f] = v
	}
	if change.Inner != nil {
		out.Inner = p.Inner.Merge(change.Inner)
	}
	return out
}

// Vars are the ports and numbers that patterns have bound to names.
type Vars map[string]uint32

// Resolve returns the packet with the named ports in place of their names.
func (p *Packet) Resolve(vars Vars) (*Packet, error) {
	if p == nil {
		return nil, nil
	}
	out := p.Clone()
	for f, v := range out.values {
		if v.Bind != "" {
			delete(out.values, f)
		}
		if v.Var == "" {
			continue
		}
		n, ok := vars[v.Var]
		if !ok {
			return nil, fmt.Errorf("%s: no earlier line binds the name %s (`* as %s`)", f, v.Var, v.Var)
		}
		out.values[f] = Value{Num: uint64(n)}
	}
	var err error
	out.Inner, err = out.Inner.Resolve(vars)
	return out, err
}

// Brief returns the packet without defaults and the link layer: short enough for a line that people
// read.
func (p *Packet) Brief() *Packet {
	out := p.Clone()
	for q := out; q != nil; q = q.Inner {
		for f, v := range q.values {
			s := f.spec()
			keep := s.derived || s.kind == kindFlag || s.kind == kindPort || s.kind == kindFlags || s.kind == kindICMP
			if !keep && v == (Value{Num: s.def}) || f == From || f == To {
				delete(q.values, f)
			}
		}
	}
	return out
}
