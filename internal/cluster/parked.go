package cluster

import (
	"sync"
	"time"
)

const (
	maxParked   = 65_536 // records, of all nodes together
	parkedTime  = 10 * time.Second
	parkedRetry = 250 * time.Millisecond
	// parkedCost bounds the share of a core that retries take: one in parkedCost.
	parkedCost = 50
)

// parked are records whose service or endpoint is not here yet: a node may apply a configuration
// later than the others.
type parked[T any] struct {
	mu     sync.Mutex
	list   []waiting[T]
	taken  int             // records that are being retried and still occupy places
	byNode map[*source]int // records of each node, including taken ones
}

type waiting[T any] struct {
	record  T
	of      *source
	arrived time.Time
}

// add parks a record, unless there is no room. A node gets half of the free places, so a node with
// different services leaves room for the others.
func (p *parked[T]) add(s *source, record T) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.byNode[s]
	others := len(p.list) + p.taken - own
	if own >= (maxParked-others+1)/2 {
		return false
	}
	if p.byNode == nil {
		p.byNode = map[*source]int{}
	}
	p.byNode[s]++
	p.list = append(p.list, waiting[T]{record, s, time.Now()})
	return true
}

// take returns all, in the order in which they came. They keep their places until putBack.
func (p *parked[T]) take() []waiting[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.list
	p.list, p.taken = nil, len(list)
	return list
}

// putBack returns taken records that must wait longer.
func (p *parked[T]) putBack(list []waiting[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list, p.taken = append(list, p.list...), 0
	clear(p.byNode)
	for i := range p.list {
		p.byNode[p.list[i].of]++
	}
}
