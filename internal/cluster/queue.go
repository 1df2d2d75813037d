package cluster

import (
	"sync"

	"loxilb/internal/cluster/transport"
)

// MaxQueue bounds the bytes that wait for a peer; as many more may be on their way to it. A slower
// peer gets all connections instead, once it reads again.
const MaxQueue = 8 << 20

// chunkCost is the memory of a chunk besides its data: the chunk itself, its place in the list, and
// the allocator's rounding. A node with few connections has a chunk for each record.
const chunkCost = 160

// queue holds the records that wait for a peer, in chunks that all peers share.
type queue struct {
	mu     sync.Mutex
	chunks []chunk
	bytes  int  // of memory
	stale  bool // chunks were dropped since the last reset
	ready  chan struct{}
}

// chunk holds records of at most MaxFrame bytes.
type chunk struct {
	data    []byte
	count   int
	needs   transport.Feature // only nodes with this feature get the chunk
	clients bool              // the records are of clients
	err     error             // instead of records: why the full copy failed
}

func (c *chunk) cost() int { return cap(c.data) + chunkCost }

func newQueue() *queue { return &queue{ready: make(chan struct{}, 1)} }

// put adds a chunk. If there is no room, it drops all chunks: a copy of everything follows.
func (q *queue) put(c chunk) {
	q.mu.Lock()
	switch {
	case q.stale:
	case q.bytes+c.cost() > MaxQueue:
		q.chunks, q.bytes, q.stale = nil, 0, true
	default:
		q.chunks = append(q.chunks, c)
		q.bytes += c.cost()
	}
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take returns all chunks, and whether some were dropped.
func (q *queue) take() (list []chunk, stale bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	list, stale = q.chunks, q.stale
	q.chunks, q.bytes, q.stale = nil, 0, false
	return list, stale
}

// isStale reports whether chunks were dropped that take has not reported yet.
func (q *queue) isStale() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stale
}

// waitingBytes returns the memory of the chunks that wait.
func (q *queue) waitingBytes() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes
}
