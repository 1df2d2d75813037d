package pkt

import (
	"fmt"
	"maps"
	"strings"
)

// Match compares a packet with a pattern: every stated field, and every derived one (checksums,
// lengths), which must be right if the pattern does not state it. It returns "" for a match, and
// adds the names that the pattern binds to vars; otherwise it returns both, field by field, and
// leaves vars unchanged.
func Match(pattern, packet *Packet, vars Vars) (diff string) {
	bound := Vars{}
	if matches(pattern, packet, vars, bound) {
		maps.Copy(vars, bound)
		return ""
	}
	return Diff(pattern, packet, vars)
}

func matches(pattern, packet *Packet, vars, bound Vars) bool {
	if pattern == nil || packet == nil {
		return pattern == nil // not stated is ignored
	}
	if pattern.Proto != packet.Proto {
		return false
	}
	for f := range fields {
		if !sameField(f, pattern, packet, vars) {
			return false
		}
		name := pattern.values[f].Bind
		if name == "" {
			continue
		}
		got := uint32(packet.Num(f))
		for _, known := range []Vars{vars, bound} {
			if n, ok := known[name]; ok && n != got {
				return false
			}
		}
		bound[name] = got
	}
	return matches(pattern.Inner, packet.Inner, vars, bound)
}

// sameField compares one field; a field that the pattern does not state matches unless it is
// derived.
func sameField(f Field, pattern, packet *Packet, vars Vars) bool {
	want, stated := pattern.values[f]
	got, has := packet.values[f]
	switch {
	case !stated:
		return !has || !f.spec().derived || f == EtherType && packet.Proto == Eth
	case f == GSO || f == Head || f == Trunc:
		return true // not in the bytes
	case f == Len || f == Data:
		b := packet.payload()
		return f == Len && len(b) == int(want.Num) || f == Data && string(b) == want.Text
	case want.Bind != "":
		n, ok := vars[want.Bind]
		return !ok || uint64(n) == got.Num
	case want.Var != "":
		n, ok := vars[want.Var]
		return ok && uint64(n) == got.Num
	case want.Text == "right" && f.spec().kind == kindSum:
		return !has
	case f.spec().kind == kindFlag:
		return has
	case f.spec().kind == kindSum, f.spec().derived:
		return has && want == got
	}
	return want == packet.Value(f)
}

// Diff writes two packets field by field, and marks the fields that differ. It is meant for people.
func Diff(want, got *Packet, vars Vars) string {
	var b strings.Builder
	for depth := 0; want != nil || got != nil; depth++ {
		if depth > 0 {
			fmt.Fprintf(&b, "  / inner\n")
		}
		diffLayer(&b, orEmpty(want), orEmpty(got), vars)
		want, got = inner(want), inner(got)
	}
	return b.String()
}

func orEmpty(p *Packet) *Packet {
	if p == nil {
		return New(protos)
	}
	return p
}

func inner(p *Packet) *Packet {
	if p == nil {
		return nil
	}
	return p.Inner
}

func diffLayer(b *strings.Builder, want, got *Packet, vars Vars) {
	row := func(mark bool, name, w, g string) {
		sign := ' '
		if mark {
			sign = '!'
		}
		fmt.Fprintf(b, "%c %-10s want %-42s got %s\n", sign, name, w, g)
	}
	row(want.Proto != got.Proto, "", want.Proto.String(), got.Proto.String())
	for f := range fields {
		if !want.Has(f) && !got.Has(f) {
			continue
		}
		row(!sameField(f, want, got, vars), f.String(), want.cell(f), got.cell(f))
	}
}

// cell returns the value of a field in a diff, short enough for a line.
func (p *Packet) cell(f Field) string {
	v, ok := p.values[f]
	switch {
	case !ok && f.spec().derived && p.Proto.has(f):
		return "right"
	case !ok:
		return "-"
	}
	text := v.format(f)
	if len(text) > 40 {
		text = text[:37] + "..."
	}
	return text
}
