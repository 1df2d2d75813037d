package compile

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"fmt"
	"slices"

	"loxilb/internal/kernel/datapath/bpf"
)

const (
	// leafSize is the number of rules up to which a list is not split.
	// Comparing them costs less than another node.
	leafSize = 8
	// buildWork bounds the steps of a build, which take about 0.25 s. A step processes one rule.
	buildWork = 16 << 20
	// overshoot is the factor by which a build may exceed the table's entries temporarily:
	// overlapping lists multiply before they become shorter.
	overshoot = 8
)

// treeBuilder builds all trees of a table together. It splits the longest list first: nodes and
// entries go where packets would compare most rules. It ends after a bounded number of steps,
// whatever the rules.
type treeBuilder struct {
	table          *bpf.RuleTable
	nodes          []treeNode
	longest        nodeHeap         // nodes that may be split
	entries        int              // entries of all lists that are not split; equal lists count once
	shared         map[uint64]int32 // number of identical lists, by the hashes of their rules
	work           int              // steps so far
	initialEntries int              // entries before the first split
	trees          []tree
	splits         []split // in order
	cutter         cutter
}

// tree is a tree under construction.
type tree struct {
	root     int
	first    uint16 // of its rules
	versions []int  // of IP: 0 for IPv4, 1 for IPv6
}

// treeNode is a node under construction.
type treeNode struct {
	ids      []uint16 // rules that may decide about packets of the region, in order
	hash     uint64   // of ids
	at       regions
	depth    int
	cut      cut
	children int // number of the first one; 0: a leaf
}

// split records the state of a build after a node was split.
type split struct{ node, entries int }

func newTreeBuilder(t *bpf.RuleTable) *treeBuilder {
	b := &treeBuilder{table: t, shared: map[uint64]int32{}}
	b.longest.b = b
	b.cutter.rules = t.Rules
	b.addNode(treeNode{}) // node 0 is unused: as a child, 0 means none
	return b
}

// addTree adds a tree of rules for packets of the given IP versions.
func (b *treeBuilder) addTree(ids []uint16, at regions, versions ...int) {
	for i, id := range ids {
		if covers(&b.table.Rules[id], &at) {
			ids = ids[:i+1]
			break
		}
	}
	b.trees = append(b.trees, tree{root: b.addNode(treeNode{ids: ids, at: at}), first: ids[0], versions: versions})
	b.initialEntries = b.entries
}

// addNode adds a node and queues it for a split if its list is long.
func (b *treeBuilder) addNode(n treeNode) int {
	n.hash = hashOf(n.ids)
	if b.shared[n.hash]++; b.shared[n.hash] == 1 {
		b.entries += len(n.ids)
	}
	b.nodes = append(b.nodes, n)
	i := len(b.nodes) - 1
	if len(n.ids) > leafSize && n.depth < bpf.RuleDepth-1 {
		heap.Push(&b.longest, i)
	}
	return i
}

// hashOf is FNV-1a, by rules.
func hashOf(ids []uint16) uint64 {
	h := uint64(14695981039346656037)
	for _, id := range ids {
		h = (h ^ uint64(id)) * 1099511628211
	}
	return h
}

// run splits lists until all are short, or room or work is used up.
func (b *treeBuilder) run() {
	for b.longest.Len() > 0 && b.work < buildWork && b.entries <= overshoot*int(bpf.TcRuleLimitRULE_ENTRIES) {
		i := heap.Pop(&b.longest).(int)
		n := &b.nodes[i]
		c := b.cutter.choose(n.ids, &n.at)
		if len(b.nodes)+1<<c.bits <= int(bpf.TcRuleLimitRULE_NODES) {
			b.split(i, c)
		}
		b.work += b.cutter.steps
		b.cutter.steps = 0
	}
	b.undo()
}

// split adds children to a node.
func (b *treeBuilder) split(i int, c cut) {
	n := b.nodes[i]
	first := len(b.nodes)
	if b.shared[n.hash]--; b.shared[n.hash] == 0 {
		b.entries -= len(n.ids)
	}
	for child, ids := range b.cutter.split(n.ids, c, &n.at) {
		b.addNode(treeNode{ids: ids, at: c.children(n.at, uint32(child)), depth: n.depth + 1})
	}
	b.nodes[i].cut, b.nodes[i].children = c, first
	b.splits = append(b.splits, split{node: i, entries: b.entries})
}

// undo reverts the last splits until the entries of all leaves fit.
func (b *treeBuilder) undo() {
	for b.entries > int(bpf.TcRuleLimitRULE_ENTRIES) {
		last := len(b.splits) - 1
		n := &b.nodes[b.splits[last].node]
		b.nodes = b.nodes[:n.children]
		n.children = 0
		b.splits = b.splits[:last]
		b.entries = b.initialEntries
		if last > 0 {
			b.entries = b.splits[last-1].entries
		}
	}
	b.longest.nodes = nil
}

// emit writes all trees to the table.
func (b *treeBuilder) emit() error {
	leaves := map[string]uint32{}
	for _, tree := range b.trees {
		at := uint32(len(b.table.Nodes))
		b.table.Nodes = append(b.table.Nodes, bpf.TcRuleNode{})
		b.emitNode(at, tree.root, leaves)
		for _, v := range tree.versions {
			b.table.Trees[v] = append(b.table.Trees[v], bpf.TcRuleTree{Root: at, First: uint32(tree.first)})
		}
	}
	for _, trees := range b.table.Trees {
		slices.SortFunc(trees, func(a, b bpf.TcRuleTree) int { return cmp.Compare(a.First, b.First) })
	}
	if n := len(b.table.Entries); n > int(bpf.TcRuleLimitRULE_ENTRIES) { // two lists with one hash
		return fmt.Errorf("trees of firewall rules have %d entries, more than %d", n, bpf.TcRuleLimitRULE_ENTRIES)
	}
	return nil
}

// emitNode writes node i and its descendants to the table, at index at. Leaves with the same rules
// share their entries.
func (b *treeBuilder) emitNode(at uint32, i int, leaves map[string]uint32) {
	n, t := &b.nodes[i], b.table
	if n.children == 0 {
		t.Nodes[at] = bpf.TcRuleNode{Base: b.leaf(n.ids, leaves), Word: uint16(len(n.ids))}
		return
	}
	base := uint32(len(t.Nodes))
	t.Nodes[at] = bpf.TcRuleNode{Base: base, Shift: uint8(n.cut.shift), Bits: uint8(n.cut.bits), Word: uint16(n.cut.word)}
	t.Nodes = append(t.Nodes, make([]bpf.TcRuleNode, 1<<n.cut.bits)...)
	for child := range 1 << n.cut.bits {
		b.emitNode(base+uint32(child), n.children+child, leaves)
	}
}

// leaf returns where the entries of a leaf with these rules begin.
func (b *treeBuilder) leaf(ids []uint16, leaves map[string]uint32) uint32 {
	key := make([]byte, 0, 2*len(ids))
	for _, id := range ids {
		key = binary.NativeEndian.AppendUint16(key, id)
	}
	base, there := leaves[string(key)]
	if !there {
		base = uint32(len(b.table.Entries))
		b.table.Entries = append(b.table.Entries, ids...)
		leaves[string(key)] = base
	}
	return base
}

// nodeHeap orders the nodes that may be split: the longest list first, of equal ones the oldest.
type nodeHeap struct {
	b     *treeBuilder
	nodes []int
}

func (h *nodeHeap) Len() int { return len(h.nodes) }

func (h *nodeHeap) Less(i, j int) bool {
	a, b := h.nodes[i], h.nodes[j]
	if c := cmp.Compare(len(h.b.nodes[a].ids), len(h.b.nodes[b].ids)); c != 0 {
		return c > 0
	}
	return a < b
}

func (h *nodeHeap) Swap(i, j int) { h.nodes[i], h.nodes[j] = h.nodes[j], h.nodes[i] }
func (h *nodeHeap) Push(x any)    { h.nodes = append(h.nodes, x.(int)) }

func (h *nodeHeap) Pop() any {
	last := len(h.nodes) - 1
	i := h.nodes[last]
	h.nodes = h.nodes[:last]
	return i
}
