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
	// leafSize is the number of rules up to which a list is not split: comparing them costs
	// less than another node.
	leafSize = 8
	// buildWork bounds the steps of a build, which take about 0.25 s. A step processes one
	// rule.
	buildWork = 16 << 20
	// overshoot is the factor by which a build may exceed the table's entries temporarily:
	// overlapping lists multiply before they become shorter.
	overshoot = 8
)

// treeBuilder builds all trees of a table together. It splits the longest list first, so nodes and
// entries are spent where packets would be compared with most rules. It ends after a bounded number
// of steps, whatever the rules.
type treeBuilder struct {
	table          *bpf.RuleTable
	nodes          []treeNode
	longest        nodeHeap         // nodes that may be split
	entries        int              // sum of the lengths of all leaves' lists; equal lists count once
	shared         map[uint64]int32 // number of identical lists, by the hashes of their rules
	work           int              // steps so far
	initialEntries int              // entries before the first split
	trees          []tree
	splits         []split // splits so far, in order
	splitter       splitter
}

// tree is a tree under construction.
type tree struct {
	root     int    // its first node
	first    uint16 // its first rule
	versions []int  // IP versions: 0 for IPv4, 1 for IPv6
}

// treeNode is a node under construction.
type treeNode struct {
	ids      []uint16 // rules that may decide about packets of the regions, in order
	hash     uint64   // of ids
	at       regions
	depth    int
	branch   bitRange
	children int // number of the first one; 0: a leaf
}

// split records the state of a build after a node was split.
type split struct{ node, entries int }

func newTreeBuilder(t *bpf.RuleTable) *treeBuilder {
	b := &treeBuilder{table: t, shared: map[uint64]int32{}}
	b.longest.b = b
	b.splitter.rules = t.Rules
	b.addNode(treeNode{}) // node 0 is unused: as a child, 0 means none
	return b
}

// addTree adds a tree of rules for packets of these IP versions.
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

// hashOf is FNV-1a over the indices of rules.
func hashOf(ids []uint16) uint64 {
	h := uint64(14695981039346656037)
	for _, id := range ids {
		h = (h ^ uint64(id)) * 1099511628211
	}
	return h
}

// run splits lists until all are short, or until it runs out of room or of steps.
func (b *treeBuilder) run() {
	for b.longest.Len() > 0 && b.work < buildWork && b.entries <= overshoot*int(bpf.TcRuleLimitRULE_ENTRIES) {
		i := heap.Pop(&b.longest).(int)
		n := &b.nodes[i]
		by := b.splitter.choose(n.ids, &n.at)
		if len(b.nodes)+1<<by.width <= int(bpf.TcRuleLimitRULE_NODES) {
			b.split(i, by)
		}
		b.work += b.splitter.steps
		b.splitter.steps = 0
	}
	b.undo()
}

// split adds children to a node.
func (b *treeBuilder) split(i int, by bitRange) {
	n := b.nodes[i]
	first := len(b.nodes)
	if b.shared[n.hash]--; b.shared[n.hash] == 0 {
		b.entries -= len(n.ids)
	}
	for child, ids := range b.splitter.split(n.ids, by, &n.at) {
		b.addNode(treeNode{ids: ids, at: by.children(n.at, uint32(child)), depth: n.depth + 1})
	}
	b.nodes[i].branch, b.nodes[i].children = by, first
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
	t.Nodes[at] = bpf.TcRuleNode{Base: base, Shift: uint8(n.branch.shift), Bits: uint8(n.branch.width), Word: uint16(n.branch.word)}
	t.Nodes = append(t.Nodes, make([]bpf.TcRuleNode, 1<<n.branch.width)...)
	for child := range 1 << n.branch.width {
		b.emitNode(base+uint32(child), n.children+child, leaves)
	}
}

// leaf returns the index of the first entry of a leaf with these rules.
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

// nodeHeap orders the nodes that may be split: the longest list first, and the oldest node among
// equal ones.
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
