package cluster

import "time"

// QuietTime is how long unknown TCP segments are left unanswered after the nodes have changed.
const QuietTime = 5 * time.Second

// hashedQuietTime is the same for segments that a service would forward by hash
// (docs/adr/0123-segments-without-a-record.md).
const hashedQuietTime = time.Second

// keepQuiet leaves unknown segments unanswered for a while. While a node sends all its connections,
// many records are missing, so no segment is forwarded by hash either.
func (n *Node) keepQuiet() {
	hashed := hashedQuietTime
	if n.isCatchingUp() {
		hashed = QuietTime
	}
	if err := n.Table.KeepQuiet(QuietTime, hashed); err != nil {
		n.Log.Error("segments of unknown connections are refused although a copy may arrive", "error", err)
	}
}

// isCatchingUp reports whether a node is sending all its connections.
func (n *Node) isCatchingUp() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.sources {
		if s.isCatchingUp() {
			return true
		}
	}
	return false
}

func (s *source) isCatchingUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live != nil && !s.complete
}
