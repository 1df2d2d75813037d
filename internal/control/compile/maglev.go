package compile

import (
	"cmp"
	"slices"
)

// MaglevNode is a target of flows.
type MaglevNode struct {
	Name   string // its name on every machine; no two nodes share one
	Weight uint32 // its share of the table; 0: none
	Down   bool   // it has no slots now, but still counts for the size of the table
	Tenths uint8  // tenths of its share that it gets now, if any node has Tenths; the size of the table remains that for whole shares
}

const (
	// slotsPerNode is the least average number of slots per node. With fewer, adding or
	// removing a node changes many slots of others (docs/adr/0020-slots.md).
	slotsPerNode = 160
	// slotsOfLightest is the least number of slots of the lightest node, whose share is exact
	// to within one slot.
	slotsOfLightest = 16
)

// MaglevSize returns the number of slots of the table for these nodes. Sizes are primes, so every
// permutation has all slots. Each size is about twice the previous one, since a change of the size
// moves nearly every flow. The largest is the largest prime that fits into a segment of the slots
// map.
//
// A single node has one slot. Nodes of weight 0 count, so draining a node moves no flows of others.
// The size depends on the ratio of the weights' sum to the smallest weight, not on their common
// divisor, by which a change from 500:500 to 501:500 would be one from 2 units to 1,001.
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
	need := uint64(len(nodes)) * slotsPerNode
	if lightest > 0 {
		need = max(need, (sum*slotsOfLightest+lightest-1)/lightest)
	}
	sizes := [...]int{509, 1021, 2039, 4093, 8191, 16381, 32749, 65521}
	for _, size := range sizes {
		if need <= uint64(size) {
			return size
		}
	}
	return sizes[len(sizes)-1]
}

// MaglevTable returns the node of each of MaglevSize(nodes) slots, as an index into nodes. It
// depends only on the names, the weights and the seed, not on the order of the nodes. Every node
// with a weight has a slot, as long as there are slots; the shares match the weights to within one
// slot each. Without any weight the table is empty.
//
// It is a table of consistent hashing: a flow's hash, modulo the size of the table, selects its
// slot, and when a node is added or removed, hardly any other node's slots change. It follows
// section 3.4 of "Maglev: A Fast and Reliable Software Network Load Balancer" (NSDI 2016), with
// weights.
func MaglevTable(seed uint64, nodes []MaglevNode) []uint32 {
	size := MaglevSize(nodes)
	permutations := permutationsOf(seed, nodes, uint32(size))
	if len(permutations) == 0 {
		return nil
	}
	const free = ^uint32(0)
	table := make([]uint32, size)
	for i := range table {
		table[i] = free
	}
	order := newSchedule(permutations, size)
	for range size {
		p := &permutations[order.next()]
		for table[p.slot] != free {
			p.advance(uint32(size))
		}
		table[p.slot] = p.node
	}
	return table
}

// permutation is the order in which a node prefers the slots: from the first one on in equal steps.
type permutation struct {
	slot, skip uint32
	node       uint32 // index into nodes
	weight     uint32
}

func (p *permutation) advance(size uint32) {
	p.slot += p.skip
	if p.slot >= size {
		p.slot -= size
	}
}

// permutationsOf returns the permutations of the nodes that have slots, in the order of their
// names.
func permutationsOf(seed uint64, nodes []MaglevNode, size uint32) []permutation {
	permutations := make([]permutation, 0, len(nodes))
	partly := slices.ContainsFunc(nodes, func(n MaglevNode) bool { return n.Tenths != 0 })
	for i, n := range nodes {
		if partly {
			n.Weight *= uint32(n.Tenths)
		}
		if n.Weight == 0 || n.Down {
			continue
		}
		h := hash(seed, n.Name)
		permutations = append(permutations, permutation{
			slot: uint32(h % uint64(size)), skip: uint32(mix(h)%uint64(max(size, 2)-1)) + 1,
			node: uint32(i), weight: n.Weight,
		})
	}
	slices.SortFunc(permutations, func(a, b permutation) int { return cmp.Compare(nodes[a.node].Name, nodes[b.node].Name) })
	return permutations
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

// schedule determines which node gets the next slot. A node's turn number k is in round
// k*heaviest/weight, rounded down. So every node has a turn in round 0, the heaviest has one in
// each round, and shares follow the weights at any time.
//
// Each round has a linked list of the nodes with a turn in it, so the cost of a turn depends
// neither on the number of nodes nor on their weights. A heap takes three times as long.
type schedule struct {
	round       int
	first, last []int32 // first and last entry of each round; first is -1: none
	entries     []scheduleEntry
	heaviest    uint64
}

type scheduleEntry struct {
	turns, weight uint64
	next          int32 // next entry of the round; -1: none
}

// newSchedule returns the schedule for a table of size slots, which also bounds the number of
// rounds.
func newSchedule(permutations []permutation, size int) *schedule {
	s := &schedule{first: make([]int32, size), last: make([]int32, size), entries: make([]scheduleEntry, len(permutations))}
	for i := range s.first {
		s.first[i] = -1
	}
	for i, p := range permutations {
		s.entries[i].weight = uint64(p.weight)
		s.heaviest = max(s.heaviest, uint64(p.weight))
		s.add(0, int32(i))
	}
	return s
}

func (s *schedule) add(round int, i int32) {
	s.entries[i].next = -1
	if s.first[round] < 0 {
		s.first[round] = i
	} else {
		s.entries[s.last[round]].next = i
	}
	s.last[round] = i
}

// next returns the index of the permutation with the next turn. It may be called once per slot of
// the table.
func (s *schedule) next() int {
	for s.first[s.round] < 0 {
		s.round++
	}
	i := s.first[s.round]
	n := &s.entries[i]
	s.first[s.round] = n.next
	n.turns++
	if round := n.turns * s.heaviest / n.weight; round < uint64(len(s.first)) {
		s.add(int(round), i)
	}
	return int(i)
}
