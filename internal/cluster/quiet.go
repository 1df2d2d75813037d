package cluster

import "time"

// Quiet is for how long unknown TCP segments are left unanswered after the nodes have changed.
const Quiet = 5 * time.Second

// quiet leaves unknown segments unanswered for a while.
func (n *Node) quiet() {
	if err := n.Table.KeepQuiet(Quiet); err != nil {
		n.Log.Error("segments of unknown connections are refused although a copy may arrive", "error", err)
	}
}
