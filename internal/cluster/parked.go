package cluster

import (
	"sync"
	"time"
)

const (
	parkedMost  = 65_536 // records, of all nodes together
	parkedTime  = 10 * time.Second
	parkedRetry = 250 * time.Millisecond
)

// parked are records whose service or endpoint is not here yet: a node may apply a configuration
// later than the others.
type parked[T any] struct {
	mu   sync.Mutex
	list []waiting[T]
}

type waiting[T any] struct {
	record T
	of     *source
	came   time.Time
}

// add parks a record, unless there is no room.
func (p *parked[T]) add(s *source, record T) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.list) >= parkedMost {
		return false
	}
	p.list = append(p.list, waiting[T]{record, s, time.Now()})
	return true
}

// take returns all, in the order in which they came.
func (p *parked[T]) take() []waiting[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.list
	p.list = nil
	return list
}

func (p *parked[T]) putBack(list []waiting[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(list, p.list...)
}
