package main

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"loxilb/internal/lb/report"
)

// TestAddPeers checks that a node which exchanges connections is present although it cannot reach
// the shared store, that its own count of connections replaces the store's, and that a dead node is
// away before its entry in the store expires.
func TestAddPeers(t *testing.T) {
	t.Parallel()
	const away = "its entry in the shared store is gone"
	all := map[string]*report.Node{
		"cut":  {Name: "cut", Shared: true, Revision: 7, Away: away, Roles: []string{"default MASTER"}, Connections: 1},
		"gone": {Name: "gone", Shared: true, Away: away},
		"busy": {Name: "busy", Shared: true, Connections: 1, Roles: []string{"default BACKUP"}},
		"old":  {Name: "old", Shared: true, Connections: 1},
		"died": {Name: "died", Shared: true}, "unreachable": {Name: "unreachable", Shared: true}, "sends": {Name: "sends", Shared: true},
	}
	const refused = "connection refused"
	addPeers(all, []report.ClusterPeer{
		{Node: "cut", State: report.PeerUp, Build: "1.2", Peers: 2, Connections: 5},
		{Node: "gone", State: report.PeerDown, Reason: "connection refused", Peers: 2, Connections: 5},
		{Node: "busy", State: report.PeerCopying, Peers: 2, Connections: 5, Roles: []string{"default MASTER"}},
		{Node: "old", State: report.PeerUp},
		{Node: "died", State: report.PeerDown, Reason: refused, Since: time.Now()},
		{Node: "unreachable", State: report.PeerDown, Reason: refused, Since: time.Now().Add(-time.Minute)},
		{Node: "sends", State: report.PeerDown, Reason: refused, Since: time.Now(), Sends: true},
	})
	if n := all["died"]; n.Away != refused || n.Since.IsZero() {
		t.Errorf("a node whose entry in the store has outlived it is %+v", n)
	}
	for _, name := range []string{"unreachable", "sends"} {
		if n := all[name]; n.Away != "" || n.SyncProblem != refused {
			t.Errorf("a node that gets no connections is %+v", n)
		}
	}
	if n := all["cut"]; n.Away != "" || n.SyncProblem != away || !n.Behind || n.Revision != 7 || n.Build != "1.2" || n.Connections != 5 || n.Roles != nil {
		t.Errorf("a node without the store is %+v", n)
	}
	if n := all["gone"]; n.Away != away || n.State != report.PeerDown {
		t.Errorf("a node that has gone is %+v", n)
	}
	if n := all["busy"]; n.Connections != 5 || !slices.Equal(n.Roles, []string{"default MASTER"}) {
		t.Errorf("a node that shows its state is %+v", n)
	}
	if n := all["old"]; n.Connections != 1 {
		t.Errorf("a node that shows no state is %+v", n)
	}
}

// TestPeerOfAnotherKey checks that a peer with another key and its entry in the shared store are
// one node.
func TestPeerOfAnotherKey(t *testing.T) {
	t.Parallel()
	all := map[string]*report.Node{"node2": {Name: "node2", Shared: true, Addresses: []string{"10.1.0.2:22222", "10.0.0.2:22222"}}}
	addPeers(all, []report.ClusterPeer{
		{Address: "10.0.0.2:22222", State: report.PeerRefused, Reason: "the peer has another --cluster-key"},
		{Address: "10.0.0.3:22222", State: report.PeerRefused, Reason: "the peer has another --cluster-key"},
	})
	if n := all["node2"]; len(all) != 2 || n.State != report.PeerRefused || n.SyncProblem == "" || n.Away != "" {
		t.Errorf("got %d nodes, and %+v, want 2 and a node that is there and refused", len(all), n)
	}
	if n := all["10.0.0.3:22222"]; n == nil || n.Away == "" {
		t.Errorf("a node that is not in the store is %+v", n)
	}
	for listen, want := range map[string]string{"10.0.0.1:5": "10.0.0.1:5", "[2001:db8::1]:5": "[2001:db8::1]:5", "wrong": ""} {
		if got := strings.Join(clusterAddresses(listen), " "); got != want {
			t.Errorf("%s: got the addresses %q, want %q", listen, got, want)
		}
	}
	for _, one := range clusterAddresses(":22222") {
		if at, err := netip.ParseAddrPort(one); err != nil || at.Port() != 22222 || at.Addr().IsLoopback() {
			t.Errorf("got the address %s of this machine", one)
		}
	}
}
