package compile

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"

	"loxilb/internal/datapath/bpf"
)

// leafSize is how many rules a leaf has at most, unless the trees become too large.
const leafSize = 8

// A cut may have rules in so many children, on the average, and must leave at most this part of them to one.
const (
	spread     = 2
	worthwhile = 0.9
)

// mostBits bounds the children of a node.
const mostBits = 12

// region is what is known of a word of packets that get to a node: bits of it.
type region struct{ known, value uint32 }

// least and most are the smallest and the largest word of a region.
func (r region) least() uint32 { return r.value }
func (r region) most() uint32  { return r.value | ^r.known }

// regions are those of all words.
type regions [bpf.RuleWords]region

// growTrees makes the trees of a table's rules, of which some are of IPv6 alone.
func growTrees(t *bpf.RuleTable, ipv6 []bool) {
	var groups [2][bpf.TcRuleLimitRULE_TREES][]uint16
	left := 0
	for version := range groups {
		groups[version] = groupsOf(t, version, ipv6)
		for _, ids := range groups[version] {
			left += len(ids)
		}
	}
	for version := range groups {
		for _, ids := range groups[version] {
			if len(ids) == 0 {
				continue
			}
			root := growTree(t, ids, version, left)
			t.Trees[version] = append(t.Trees[version], bpf.TcRuleTree{Root: root, First: uint32(ids[0])})
			left -= len(ids)
		}
		slices.SortFunc(t.Trees[version], func(a, b bpf.TcRuleTree) int { return cmp.Compare(a.First, b.First) })
	}
}

// growTree makes a tree and returns its root. It has its part of the room that is left, by its part of the rules that are left. If it does not fit,
// its leaves become larger, in the end all of it is one leaf.
func growTree(t *bpf.RuleTable, ids []uint16, version, left int) (root uint32) {
	part := func(most uint32, used int) int { return used + (int(most)-used)*len(ids)/left }
	nodes, entries := len(t.Nodes), len(t.Entries)
	for size := leafSize; ; size *= 2 {
		g := gardener{
			table: t, leafSize: size, leaves: map[string]uint32{},
			nodesMax: part(uint32(bpf.TcRuleLimitRULE_NODES), nodes), entriesMax: part(uint32(bpf.TcRuleLimitRULE_ENTRIES), entries),
		}
		root = g.nodes(1)
		if g.plant(root, ids, everything(version), 0); !g.full {
			return root
		}
		t.Nodes, t.Entries = t.Nodes[:nodes], t.Entries[:entries]
	}
}

// gardener makes a tree.
type gardener struct {
	table                *bpf.RuleTable
	leafSize             int
	nodesMax, entriesMax int               // of the table, with this tree
	leaves               map[string]uint32 // by their rules: where those are
	full                 bool
	steps                [1<<mostBits + 1]int32 // of weigh
}

// everything is what is known of any packet of an IP version.
func everything(version int) (all regions) {
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

// groupsOf are the rules of an IP version, apart by which of their addresses and ports are narrow: rules that are wide where others are narrow would be
// in many leaves of one tree.
func groupsOf(t *bpf.RuleTable, version int, ipv6 []bool) [bpf.TcRuleLimitRULE_TREES][]uint16 {
	var groups [bpf.TcRuleLimitRULE_TREES][]uint16
	all := everything(version)
	word := [2]int{3, 1}[version] // that narrow prefixes have something of, /16 or /48, beyond the first half of it
	for i := range t.Rules {
		r := &t.Rules[i]
		if !meets(r, &all) || version == 1 && isIPv4(r) || version == 0 && ipv6[i] {
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

// isIPv4 reports whether a rule asks for IPv4 addresses, as which no IPv6 packet has any.
func isIPv4(r *bpf.TcRule) bool {
	for _, w := range []int{int(bpf.TcRuleWordRULE_SADDR), int(bpf.TcRuleWordRULE_DADDR)} {
		if r.First[w]|r.Span[w]|r.First[w+1]|r.Span[w+1]|r.Span[w+2] == 0 && r.First[w+2] == 0xffff {
			return true
		}
	}
	return false
}

// meets reports whether a rule may match a packet of a region.
func meets(r *bpf.TcRule, at *regions) bool {
	for w := range at {
		if r.First[w] > at[w].most() || r.First[w]+r.Span[w] < at[w].least() {
			return false
		}
	}
	return true
}

// covers reports whether a rule matches all packets of a region.
func covers(r *bpf.TcRule, at *regions) bool {
	for w := range at {
		if r.First[w] > at[w].least() || r.First[w]+r.Span[w] < at[w].most() {
			return false
		}
	}
	return true
}

// nodes makes room for some in a row.
func (g *gardener) nodes(n int) uint32 {
	first := len(g.table.Nodes)
	if first+n > g.nodesMax {
		g.full = true
		return 0
	}
	g.table.Nodes = append(g.table.Nodes, make([]bpf.TcRuleNode, n)...)
	return uint32(first)
}

// plant makes node number i decide between rules, of packets of a region.
func (g *gardener) plant(i uint32, ids []uint16, at regions, depth int) {
	ids = g.visible(ids, &at)
	cut, ok := cut{}, false
	if len(ids) > g.leafSize && depth < bpf.RuleDepth && !g.full {
		cut, ok = g.choose(ids, &at)
	}
	if !ok {
		g.table.Nodes[i] = g.leaf(ids)
		return
	}
	children := g.split(ids, cut, at[cut.word])
	base := g.nodes(len(children))
	if g.full {
		return
	}
	g.table.Nodes[i] = bpf.TcRuleNode{Base: base, Shift: uint8(cut.shift), Bits: uint8(cut.bits), Word: uint16(cut.word)}
	for n, child := range children {
		inner := at
		mask := (uint32(1)<<cut.bits - 1) << cut.shift
		inner[cut.word].known |= mask
		inner[cut.word].value = inner[cut.word].value&^mask | uint32(n)<<cut.shift
		g.plant(base+uint32(n), child, inner, depth+1)
	}
}

// visible are the rules that may decide about a packet of a region: none after one that matches all of them.
func (g *gardener) visible(ids []uint16, at *regions) []uint16 {
	var out []uint16
	for _, id := range ids {
		r := &g.table.Rules[id]
		if !meets(r, at) {
			continue
		}
		out = append(out, id)
		if covers(r, at) {
			break
		}
	}
	return out
}

// leaf is a node with these rules. Leaves of the same rules share them.
func (g *gardener) leaf(ids []uint16) bpf.TcRuleNode {
	key := make([]byte, 0, 2*len(ids))
	for _, id := range ids {
		key = binary.NativeEndian.AppendUint16(key, id)
	}
	base, there := g.leaves[string(key)]
	if !there {
		base = uint32(len(g.table.Entries))
		if int(base)+len(ids) > g.entriesMax {
			g.full = true
			return bpf.TcRuleNode{}
		}
		g.table.Entries = append(g.table.Entries, ids...)
		g.leaves[string(key)] = base
	}
	return bpf.TcRuleNode{Base: base, Word: uint16(len(ids))}
}

// cut is by which bits of which word the children of a node are told apart.
type cut struct{ word, shift, bits int }

// choose finds the bits that leave the fewest rules to the packets of a rule, on the average, and have no more than spread times as many in all children
// together.
func (g *gardener) choose(ids []uint16, at *regions) (best cut, ok bool) {
	wide := min(max(bits.Len(uint(len(ids)/4)), 1), mostBits)
	least := float64(len(ids)) * worthwhile
	for w := range at {
		top := g.differ(ids, w, at[w])
		if top < 0 {
			continue
		}
		for n := wide; n > 0; n /= 2 {
			for shift := max(top-n+1, 0); ; shift = max(shift-max(n/2, 1), 0) {
				c := cut{word: w, shift: shift, bits: min(n, top-shift+1)}
				if all, squares := g.weigh(ids, c, at[w]); all <= spread*uint64(len(ids)) && float64(squares)/float64(all) < least {
					best, least, ok = c, float64(squares)/float64(all), true
				}
				if shift == 0 {
					break
				}
			}
		}
	}
	return best, ok
}

// differ is the highest bit of a word in which rules differ that not all packets of a region match. -1: there is none.
func (g *gardener) differ(ids []uint16, w int, at region) int {
	var common, differing uint32
	first := true
	for _, id := range ids {
		lo, hi := g.clip(id, w, at)
		if lo == at.least() && hi == at.most() {
			continue
		}
		if first {
			common, first = lo, false
		}
		differing |= lo ^ hi | lo ^ common
	}
	return bits.Len32(differing&^at.known) - 1
}

// clip is the part of a rule's word that packets of a region may have.
func (g *gardener) clip(id uint16, w int, at region) (lo, hi uint32) {
	r := &g.table.Rules[id]
	return max(r.First[w], at.least()), min(r.First[w]+r.Span[w], at.most())
}

// places are the children that a rule is in: n of them from the first on, and on from 0 after the last.
func (g *gardener) places(id uint16, c cut, at region) (first, n uint32) {
	lo, hi := g.clip(id, c.word, at)
	mask := uint32(1)<<c.bits - 1
	first, last := lo>>c.shift, hi>>c.shift
	if last-first >= mask {
		return 0, mask + 1
	}
	return first & mask, last - first + 1
}

// weigh is how many rules the children have together, and the sum of the squares.
func (g *gardener) weigh(ids []uint16, c cut, at region) (all, squares uint64) {
	size := uint32(1) << c.bits
	steps := g.steps[:size+1]
	clear(steps)
	for _, id := range ids {
		first, n := g.places(id, c, at)
		steps[first]++
		if end := first + n; end <= size {
			steps[end]--
		} else {
			steps[size]--
			steps[0]++
			steps[end-size]--
		}
	}
	have := int32(0)
	for _, step := range steps[:size] {
		have += step
		all += uint64(have)
		squares += uint64(have) * uint64(have)
	}
	return all, squares
}

// split are the rules of each child.
func (g *gardener) split(ids []uint16, c cut, at region) [][]uint16 {
	size := uint32(1) << c.bits
	children := make([][]uint16, size)
	for _, id := range ids {
		first, n := g.places(id, c, at)
		for i := range n {
			child := (first + i) % size
			children[child] = append(children[child], id)
		}
	}
	return children
}
