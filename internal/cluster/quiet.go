package cluster

import "time"

// Quiet is for how long unknown TCP segments are left unanswered after the nodes have changed.
const Quiet = 5 * time.Second

// hashedQuiet is the same for segments that a service passes on by their hash
// (docs/adr/0123-segments-without-a-record.md).
const hashedQuiet = time.Second

// quiet leaves unknown segments unanswered for a while. While a node sends all its connections,
// more records than those of the last moments are missing, so none is passed on by its hash.
func (n *Node) quiet() {
	hashed := hashedQuiet
	if n.isCatchingUp() {
		hashed = Quiet
	}
	if err := n.Table.KeepQuiet(Quiet, hashed); err != nil {
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
