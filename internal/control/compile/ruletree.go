package compile

import (
	"slices"

	"loxilb/internal/kernel/datapath/bpf"
)

// region has what is known about a word of the packets that reach a node: bits and their values.
type region struct{ known, value uint32 }

// least and most return the smallest and the largest value of a region's word.
func (r region) least() uint32 { return r.value }
func (r region) most() uint32  { return r.value | ^r.known }

// regions has a region for each word of a packet.
type regions [bpf.RuleWords]region

// buildTrees builds the trees of a table's rules, and returns the number of steps. ipv6 marks rules
// that match only IPv6.
func buildTrees(t *bpf.RuleTable, ipv6 []bool) (steps int, err error) {
	b := newTreeBuilder(t)
	four, six := groupsOf(t, 0, ipv6), groupsOf(t, 1, ipv6)
	for g := range six {
		if len(six[g]) > 0 && slices.Equal(four[g], six[g]) {
			b.addTree(six[g], allRegions(1), 0, 1) // packets of both versions can go through one tree
			continue
		}
		for version, ids := range [][]uint16{four[g], six[g]} {
			if len(ids) > 0 {
				b.addTree(ids, allRegions(version), version)
			}
		}
	}
	b.run()
	return b.work, b.emit()
}

// portWords are the words with the ports of a packet. Both are RULE_NO_PORT for packets without
// ports.
var portWords = [2]int{int(bpf.TcRuleWordRULE_SPORT), int(bpf.TcRuleWordRULE_DPORT)}

// allRegions returns the regions that match any packet of an IP version.
func allRegions(version int) (all regions) {
	all[bpf.TcRuleWordRULE_PROTOCOL] = region{known: ^uint32(0xff)}
	for _, ports := range portWords {
		all[ports] = region{known: ^uint32(bpf.TcRuleWordRULE_NO_PORT | 0xffff)}
	}
	if version == 1 {
		return all
	}
	for _, address := range []int{int(bpf.TcRuleWordRULE_SADDR), int(bpf.TcRuleWordRULE_DADDR)} {
		all[address] = region{known: ^uint32(0)}
		all[address+1] = region{known: ^uint32(0)}
		all[address+2] = region{known: ^uint32(0), value: 0xffff}
	}
	return all
}

// groupsOf groups the rules of an IP version by the words that they restrict. In a common tree, a
// rule that does not restrict a word which others do would be in many leaves.
func groupsOf(t *bpf.RuleTable, version int, ipv6 []bool) (groups [bpf.TcRuleLimitRULE_TREES][]uint16) {
	all := allRegions(version)
	word := [2]int{3, 1}[version] // the word of an address that only prefixes longer than /16 (IPv4) or /48 (IPv6) restrict
	for i := range t.Rules {
		r := &t.Rules[i]
		if !overlaps(r, &all) || r.First[bpf.TcRuleWordRULE_INTERFACE] == noInterface || version == 1 && isIPv4(r) || version == 0 && ipv6[i] {
			continue
		}
		narrow := func(word int) bool { return r.Span[word] <= 0xffff }
		group := 0
		switch s, d := narrow(int(bpf.TcRuleWordRULE_SADDR)+word), narrow(int(bpf.TcRuleWordRULE_DADDR)+word); {
		case s && d:
		case s:
			group = 1
		case d:
			group = 2
		case r.Span[bpf.TcRuleWordRULE_DPORT] <= 0xff:
			group = 3
		default:
			group = 4
		}
		groups[group] = append(groups[group], uint16(i))
	}
	return groups
}

// isIPv4 reports whether a rule requires an IPv4 address, so it matches no IPv6 packet.
func isIPv4(r *bpf.TcRule) bool {
	for _, w := range []int{int(bpf.TcRuleWordRULE_SADDR), int(bpf.TcRuleWordRULE_DADDR)} {
		if r.First[w]|r.Span[w]|r.First[w+1]|r.Span[w+1]|r.Span[w+2] == 0 && r.First[w+2] == 0xffff {
			return true
		}
	}
	return false
}

// overlaps reports whether a rule may match packets of a region.
func overlaps(r *bpf.TcRule, at *regions) bool {
	for w := range at {
		if r.First[w] > at[w].most() || r.First[w]+r.Span[w] < at[w].least() {
			return false
		}
	}
	return true
}

// covers reports whether a rule matches all packets of a region.
func covers(r *bpf.TcRule, at *regions) bool { return coversExcept(r, at, -1) }

// coversExcept is covers, but ignores one word.
func coversExcept(r *bpf.TcRule, at *regions, but int) bool {
	for w := range at {
		if w != but && (r.First[w] > at[w].least() || r.First[w]+r.Span[w] < at[w].most()) {
			return false
		}
	}
	return true
}
