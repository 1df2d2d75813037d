package compile

import (
	"container/heap"
	"encoding/binary"
	"time"

	"loxilb/internal/lb"
)

// scanLimit is the largest number of endpoints that the data path compares to find the endpoint
// with the fewest connections (SELECT_SCAN in bpf/service/select.h). If there are more, it compares
// two random ones.
const scanLimit = 64

// slotsOf returns the slots of the service, in the layout of its algorithm. An endpoint of weight 0
// has none.
func slotsOf(s lb.Service, w *Weights, seed uint64) []uint32 {
	layout := s.Algorithm.Layout()
	switch layout {
	case lb.LayoutConsistent:
		return MaglevTable(seed, nodes(s.Endpoints, w))
	case lb.LayoutWeighted:
		return slots(w.scaled(w.Current))
	case lb.LayoutCompared:
		if countPositive(w.Current) > scanLimit {
			return slots(w.scaled(w.Current))
		}
	}
	once := make([]uint32, len(w.Current))
	for i, weight := range w.Current {
		once[i] = min(weight, 1)
	}
	if layout == lb.LayoutCompared {
		return slots(once) // the data path compares the weights in the endpoints' rows
	}
	return slots(w.scaled(once))
}

// nodes returns a node for each endpoint, named by its address and port. An endpoint whose current
// weight is 0 is down; its configured weight still counts for the size of the table.
func nodes(endpoints []lb.Endpoint, w *Weights) []MaglevNode {
	nodes := make([]MaglevNode, len(endpoints))
	for i, e := range endpoints {
		addr := e.Addr.As16()
		nodes[i] = MaglevNode{
			Name:   string(binary.BigEndian.AppendUint16(addr[:], e.Port)),
			Weight: uint32(e.Weight),
			Down:   w.Current[i] == 0,
		}
		if w.Fractions != nil {
			nodes[i].Tenths = w.Fractions[i]
		}
	}
	return nodes
}

func countPositive(weights []uint32) (n int) {
	for _, w := range weights {
		if w > 0 {
			n++
		}
	}
	return n
}

// persist returns how long a client's endpoint is kept, and the prefix length that identifies a
// client, in the maps' form.
func persist(s lb.Service) (time.Duration, uint8) {
	timeout, prefix := s.PersistTimeout, s.PersistPrefix
	if timeout == 0 {
		timeout = lb.DefaultPersistTimeout
	}
	switch {
	case prefix == 0:
		prefix = 128
	case s.VIP.Is4():
		prefix += mappedBits
	}
	return timeout, prefix
}

// smooth lays out a round in which endpoint i has weights[i] slots at even distances: slot k of
// weight w is due at (2k+1)/(2w) of the round. Ties are in the order of due.
//
// It is smooth weighted round robin by earliest deadline, in O(total log n). The classic form,
// which adds every weight at every step, takes O(total n): too long for 4,096 endpoints.
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

// due is the position of an endpoint's next slot: at/(2*weight) of the round.
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
