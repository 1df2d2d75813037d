package main

import (
	"slices"
	"testing"

	"loxilb/internal/lb/report"
)

// TestAddPeers checks that a node which exchanges connections is there although it cannot reach the
// shared store, and that its own count of connections precedes the older one of the store.
func TestAddPeers(t *testing.T) {
	t.Parallel()
	const away = "it no longer shows itself in the shared store"
	all := map[string]*report.Node{
		"cut":  {Name: "cut", Shared: true, Revision: 7, Lost: away, Roles: []string{"default MASTER"}, Connections: 1},
		"gone": {Name: "gone", Shared: true, Lost: away},
		"busy": {Name: "busy", Shared: true, Connections: 1, Roles: []string{"default BACKUP"}},
		"old":  {Name: "old", Shared: true, Connections: 1},
	}
	addPeers(all, []report.ClusterPeer{
		{Node: "cut", State: report.PeerUp, Build: "1.2", Peers: 2, Connections: 5},
		{Node: "gone", State: report.PeerDown, Reason: "connection refused", Peers: 2, Connections: 5},
		{Node: "busy", State: report.PeerCopying, Peers: 2, Connections: 5, Roles: []string{"default MASTER"}},
		{Node: "old", State: report.PeerUp},
	})
	if n := all["cut"]; n.Lost != "" || n.Alone != away || !n.Behind || n.Revision != 7 || n.Build != "1.2" || n.Connections != 5 || n.Roles != nil {
		t.Errorf("a node without the store is %+v", n)
	}
	if n := all["gone"]; n.Lost != away || n.State != report.PeerDown {
		t.Errorf("a node that has gone is %+v", n)
	}
	if n := all["busy"]; n.Connections != 5 || !slices.Equal(n.Roles, []string{"default MASTER"}) {
		t.Errorf("a node that shows its state is %+v", n)
	}
	if n := all["old"]; n.Connections != 1 {
		t.Errorf("a node that shows no state is %+v", n)
	}
}
