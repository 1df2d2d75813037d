package compile

import "container/heap"

// smooth lays out one round in which endpoint i comes weights[i] times, at even distances: place k
// of endpoint i is due at (2k+1)/(2w), and the places are taken in that order, ties in the order of
// the list.
//
// It is the "earliest deadline first" form of smooth weighted round robin: O(total log n), where
// the classic form, which adds every weight at every step, is O(total n) and so too slow for 4,096
// endpoints.
func smooth(weights []uint32, total int) []uint32 {
	var q dueQueue
	for i, w := range weights {
		if w > 0 {
			q = append(q, due{endpoint: uint32(i), weight: uint64(w), at: 1})
		}
	}
	heap.Init(&q)
	out := make([]uint32, 0, total)
	for len(out) < total {
		out = append(out, q[0].endpoint)
		q[0].at += 2
		heap.Fix(&q, 0)
	}
	return out
}

// due is the position of an endpoint's next place: at/(2*weight) of the round.
type due struct {
	endpoint uint32
	weight   uint64
	at       uint64
}

type dueQueue []due

func (q dueQueue) Len() int      { return len(q) }
func (q dueQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q dueQueue) Push(any)      {} // never grows
func (q dueQueue) Pop() any      { return nil }

func (q dueQueue) Less(i, j int) bool {
	a, b := q[i].at*q[j].weight, q[j].at*q[i].weight
	if a != b {
		return a < b
	}
	if q[i].weight != q[j].weight {
		return q[i].weight > q[j].weight
	}
	return q[i].endpoint < q[j].endpoint
}
