package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"loxilb/internal/lb/report"
)

// joinTime is how long a node waits for the connections of the others before it announces its
// addresses without them.
const joinTime = 10 * time.Second

// join tracks whether this node has the connections of the others.
type join struct {
	once sync.Once
	done chan struct{}
	mu   sync.Mutex
	news chan struct{} // closed when a node has sent all connections
}

func (j *join) finish() { j.once.Do(func() { close(j.done) }) }

func (j *join) changed() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.news != nil {
		close(j.news)
		j.news = nil
	}
}

// next returns a channel that is closed with the next change.
func (j *join) next() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.news == nil {
		j.news = make(chan struct{})
	}
	return j.news
}

// Joined is closed once this node has the connections of the others, or after joinTime.
func (n *Node) Joined() <-chan struct{} { return n.join.done }

// awaitPeers finishes the join once each peer has sent all connections, or cannot be reached.
func (n *Node) awaitPeers(ctx context.Context) {
	const look = 50 * time.Millisecond
	began := time.Now()
	for {
		news := n.join.next()
		missing, known := n.missing()
		if known && len(missing) == 0 {
			n.Log.Info("received the connections of the other nodes", "took", time.Since(began).Round(time.Millisecond))
			return
		}
		if time.Since(began) > joinTime {
			n.Log.Warn("announcing without the connections of some nodes", "nodes", strings.Join(missing, ", "), "waited", joinTime)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-news:
		case <-time.After(look):
		}
	}
}

// missing returns the peers whose connections may still arrive, including peers whose names cannot
// be resolved. known reports whether all peers were tried.
func (n *Node) missing() (list []string, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, configured := range slices.Concat(n.Peers, n.nodes) {
		one := n.named[configured]
		if one == nil || !one.looked {
			return []string{configured}, false
		}
		if len(one.addresses) == 0 {
			list = append(list, configured)
		}
	}
	for _, p := range n.peers {
		p.mu.Lock()
		name, tried, own, gone := p.now.Node, p.tried, p.isSelf, p.absent
		p.mu.Unlock()
		if !tried {
			return []string{p.address}, false
		}
		if own || gone {
			continue
		}
		if s := n.sources[name]; s == nil || !s.isComplete() {
			list = append(list, p.address)
		}
	}
	return list, true
}

func (s *source) isComplete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.complete
}

// isAbsent reports whether an error shows that no node runs at an address, or that it refuses this
// one.
func isAbsent(err error, state report.PeerState) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || state == report.PeerRefused
}
