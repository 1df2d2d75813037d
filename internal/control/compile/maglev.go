package compile

import (
	"cmp"
	"slices"
)

// MaglevNode is a target of flows.
type MaglevNode struct {
	Name   string // its name on every machine; no two nodes share one
	Weight uint32 // its share of the table; 0: none
	Down   bool   // it has no places now, but still counts for the size of the table
	Tenths uint8  // current tenths of its share; the table keeps the size for its whole share. 0 in all nodes: the whole share
}

const (
	// placesPerNode is the least average number of places per node: with fewer, more places
	// change than the places of an added or removed node (docs/adr/0020-slots.md).
	placesPerNode = 160
	// placesOfLightest is the least number of places of the lightest node, whose share is exact
	// to within one place.
	placesOfLightest = 16
)

// MaglevSize returns the size of the table for these nodes. Sizes are primes, so every step
// visits all places, and each is about twice the previous one: only a change to another size
// rebuilds the table and moves nearly every flow. The largest is the largest prime that fits into a
// segment of the slots map.
//
// A single node has one place. Nodes without weight count, so emptying a node moves no others. The
// size depends on the ratio of the weights' sum to the smallest one, not on their common divisor: a
// change from 500:500 to 501:500 would be one from 2 units to 1,001.
func MaglevSize(nodes []MaglevNode) int {
	if len(nodes) <= 1 {
		return len(nodes)
	}
	var sum, lightest uint64
	for _, n := range nodes {
		if w := uint64(n.Weight); w > 0 {
			sum += w
			if lightest == 0 || w < lightest {
				lightest = w
			}
		}
	}
	need := uint64(len(nodes)) * placesPerNode
	if lightest > 0 {
		need = max(need, (sum*placesOfLightest+lightest-1)/lightest)
	}
	sizes := [...]int{509, 1021, 2039, 4093, 8191, 16381, 32749, 65521}
	for _, size := range sizes {
		if need <= uint64(size) {
			return size
		}
	}
	return sizes[len(sizes)-1]
}

// MaglevTable assigns each of MaglevSize(nodes) places to a node: the index into nodes. It depends
// only on the names, the weights and the seed, not on the order of the nodes. Every node with a
// weight has a place, as long as there are places; the shares match the weights to within one place
// each. Without any weight the table is empty.
//
// It is a table of consistent hashing: a flow's hash, modulo the size of the table, finds its node,
// and when a node is added or removed, hardly any other place changes. It follows section 3.4 of
// "Maglev: A Fast and Reliable Software Network Load Balancer" (NSDI 2016), with weights.
func MaglevTable(seed uint64, nodes []MaglevNode) []uint32 {
	size := MaglevSize(nodes)
	walks := walksOf(seed, nodes, uint32(size))
	if len(walks) == 0 {
		return nil
	}
	const free = ^uint32(0)
	table := make([]uint32, size)
	for i := range table {
		table[i] = free
	}
	turns := turnsOf(walks, size)
	for range size {
		w := &walks[turns.next()]
		for table[w.place] != free {
			w.step(uint32(size))
		}
		table[w.place] = w.node
	}
	return table
}

// walk is the order in which a node prefers the places: from the first one on in equal steps.
type walk struct {
	place, skip uint32
	node        uint32 // index into nodes
	weight      uint32
}

func (w *walk) step(size uint32) {
	w.place += w.skip
	if w.place >= size {
		w.place -= size
	}
}

// walksOf returns the walks of the nodes that have places, in the order of their names.
func walksOf(seed uint64, nodes []MaglevNode, size uint32) []walk {
	walks := make([]walk, 0, len(nodes))
	partly := slices.ContainsFunc(nodes, func(n MaglevNode) bool { return n.Tenths != 0 })
	for i, n := range nodes {
		if partly {
			n.Weight *= uint32(n.Tenths)
		}
		if n.Weight == 0 || n.Down {
			continue
		}
		h := hash(seed, n.Name)
		walks = append(walks, walk{
			place: uint32(h % uint64(size)), skip: uint32(mix(h)%uint64(max(size, 2)-1)) + 1,
			node: uint32(i), weight: n.Weight,
		})
	}
	slices.SortFunc(walks, func(a, b walk) int { return cmp.Compare(nodes[a.node].Name, nodes[b.node].Name) })
	return walks
}

// hash is FNV-1a, started with the seed and mixed at the end, since FNV hardly spreads the last
// byte.
func hash(seed uint64, name string) uint64 {
	h := mix(seed) ^ 14695981039346656037
	for _, c := range []byte(name) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return mix(h)
}

// mix returns the last step of SplitMix64: each bit of the result depends on each of x.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// turns determine which node takes a place next: turn k of a node comes in round k*heaviest/weight,
// rounded down. So every node has a turn in round 0, the heaviest has one in each, and shares
// follow the weights throughout.
//
// Each round has a linked list of the nodes with a turn in it, so the cost of a turn depends
// neither on the number of nodes nor on their weights. A heap takes three times as long.
type turns struct {
	round       int
	first, last []int32 // of a round's list; -1: it is empty
	nodes       []turn
	heaviest    uint64
}

type turn struct {
	k, weight uint64
	next      int32 // in the list
}

// turnsOf makes turns for a table of that size, which also bounds the number of rounds.
func turnsOf(walks []walk, size int) *turns {
	t := &turns{first: make([]int32, size), last: make([]int32, size), nodes: make([]turn, len(walks))}
	for i := range t.first {
		t.first[i] = -1
	}
	for i, w := range walks {
		t.nodes[i].weight = uint64(w.weight)
		t.heaviest = max(t.heaviest, uint64(w.weight))
		t.add(0, int32(i))
	}
	return t
}

func (t *turns) add(round int, i int32) {
	t.nodes[i].next = -1
	if t.first[round] < 0 {
		t.first[round] = i
	} else {
		t.nodes[t.last[round]].next = i
	}
	t.last[round] = i
}

// next returns the index of the next walk. It may be called once per place of the table.
func (t *turns) next() int {
	for t.first[t.round] < 0 {
		t.round++
	}
	i := t.first[t.round]
	n := &t.nodes[i]
	t.first[t.round] = n.next
	n.k++
	if round := n.k * t.heaviest / n.weight; round < uint64(len(t.first)) {
		t.add(int(round), i)
	}
	return int(i)
}
