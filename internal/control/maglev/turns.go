package maglev

// turns say whose turn it is to take a place: turn k of a node comes in round k*heaviest/weight,
// rounded down. So every node has a turn in round 0, the heaviest has one in each, and the shares
// are those of the weights all along.
//
// Each round has a list, made of the links between nodes, of those whose turn comes in it: what a
// turn costs depends neither on the number of nodes nor on how far their weights are apart. A heap
// takes three times as long.
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

// turnsOf makes turns for a table of that size, which is the most rounds that it takes.
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

// next returns the index of the walk whose turn it is. It may be called as often as the table is
// large.
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
