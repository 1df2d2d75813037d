// Package maglev makes the tables of consistent hashing: a flow's hash, modulo the size of the table, finds its node,
// and when a node comes or goes hardly any place changes hands but its own. It follows section 3.4 of "Maglev: A Fast
// and Reliable Software Network Load Balancer" (NSDI 2016), with weights.
package maglev

import (
	"cmp"
	"slices"
)

// Size is that of the tables: the largest prime that fits into a segment of the slots map. Prime, so that every step
// is a walk over all places. There is one size for all: a table that grew with its nodes would have to be laid out
// anew, and nearly every flow move, at each border; and with fewer places more of them change hands (4,093 places, 40
// nodes: 2.2 % besides those of the node that goes; 65,521: 0.4 %).
const Size = 65521

// Node is what flows are given to.
type Node struct {
	Name   string // what it is known by on every machine; no two nodes share one
	Weight uint32 // its share of the table; 0: none
}

// Table gives each of Size places to a node: the index into nodes. It depends on the names, the weights and the seed
// alone, not on the order of the nodes. Every node of a weight has a place, as long as there are places; the shares
// are those of the weights, to within one place of each. Without any weight the table is empty.
func Table(seed uint64, nodes []Node) []uint32 {
	const size = Size
	walks := walksOf(seed, nodes)
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
			w.step()
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

func (w *walk) step() {
	w.place += w.skip
	if w.place >= Size {
		w.place -= Size
	}
}

// walksOf are those of the nodes with a weight, in the order of their names.
func walksOf(seed uint64, nodes []Node) []walk {
	walks := make([]walk, 0, len(nodes))
	for i, n := range nodes {
		if n.Weight == 0 {
			continue
		}
		h := hash(seed, n.Name)
		walks = append(walks, walk{
			place: uint32(h % Size), skip: uint32(mix(h)%(Size-1)) + 1,
			node: uint32(i), weight: n.Weight,
		})
	}
	slices.SortFunc(walks, func(a, b walk) int { return cmp.Compare(nodes[a.node].Name, nodes[b.node].Name) })
	return walks
}

// hash is that of FNV-1a, begun with the seed and mixed at the end, since FNV hardly spreads the last byte.
func hash(seed uint64, name string) uint64 {
	h := mix(seed) ^ 14695981039346656037
	for _, c := range []byte(name) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return mix(h)
}

// mix is the last step of SplitMix64: each bit of the result depends on each of x.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
