package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"loxilb/internal/kernel/datapath/bpf"
)

// sourceRows returns the rows of prefixes. A packet finds only the longest matching prefix, so each
// row inherits attachments of shorter prefixes that it does not have itself: for policers and
// mirrors, and for each direction, the longest prefix with an attachment counts.
func sourceRows(want map[netip.Prefix]bpf.TcAttachments) map[bpf.TcAttachedSource]bpf.TcAttachments {
	full := map[netip.Prefix]bpf.TcAttachments{}
	for _, p := range slices.SortedFunc(maps.Keys(want), func(a, b netip.Prefix) int { return cmp.Compare(a.Bits(), b.Bits()) }) {
		full[p] = inherit(want[p], full[enclosing(full, p)])
	}
	out := map[bpf.TcAttachedSource]bpf.TcAttachments{}
	for p, row := range full {
		bits := p.Bits()
		if p.Addr().Is4() {
			bits += v4Bits
		}
		out[bpf.TcAttachedSource{PrefixLength: uint32(bits), Addr: bpf.Addr(p.Addr())}] = row
	}
	endIPv6(out)
	return out
}

// v4Bits is the length of ::ffff:0:0/96, which has the IPv4 addresses in maps.
const v4Bits = 96

// endIPv6 hides rows of IPv6 prefixes that contain ::ffff:0:0/96 from IPv4 clients.
func endIPv6(out map[bpf.TcAttachedSource]bpf.TcAttachments) {
	v4 := netip.IPv4Unspecified()
	for n := range v4Bits {
		above, _ := netip.AddrFrom16(v4.As16()).Prefix(n)
		if _, there := out[bpf.TcAttachedSource{PrefixLength: uint32(n), Addr: bpf.Addr(above.Addr())}]; !there {
			continue
		}
		key := bpf.TcAttachedSource{PrefixLength: v4Bits, Addr: bpf.Addr(v4)}
		if _, there := out[key]; !there {
			out[key] = bpf.TcAttachments{}
		}
		return
	}
}

// enclosing returns the longest of the prefixes that contain p.
func enclosing(rows map[netip.Prefix]bpf.TcAttachments, p netip.Prefix) netip.Prefix {
	for bits := p.Bits() - 1; bits >= 0; bits-- {
		q := netip.PrefixFrom(p.Addr(), bits).Masked()
		if _, there := rows[q]; there {
			return q
		}
	}
	return netip.Prefix{}
}

func inherit(row, from bpf.TcAttachments) bpf.TcAttachments {
	for i := range row.Policers {
		row.Policers[i] = cmp.Or(row.Policers[i], from.Policers[i])
		row.Mirrors[i] = cmp.Or(row.Mirrors[i], from.Mirrors[i])
	}
	return row
}
