package cluster

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"loxilb/internal/cluster/transport"
	"loxilb/internal/lb/report"
)

// established counts this machine's TCP connections to a port.
func established(t *testing.T, port int) (count int) {
	t.Helper()
	table, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	const remote, state, isEstablished = 2, 3, "01"
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) > state && strings.HasSuffix(f[remote], fmt.Sprintf(":%04X", port)) && f[state] == isEstablished {
			count++
		}
	}
	return count
}

// TestAliasCloses checks that a node closes its connection to a second address of a connected node:
// that node would wait for its first frame, and then report that it turns the node away.
func TestAliasCloses(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 2)
	other, _ := all.start(1, newTable(), func(c *Config) { c.Peers = nil })
	credentials, err := transport.KeyFile(all.key, "node0")
	if err != nil {
		t.Fatal(err)
	}
	node := &Node{Config: Config{Credentials: credentials, Table: newTable(), Hello: other.Hello}}
	node.Hello.Node, node.Hello.Self, node.Hello.Boot = "node0", 0, "of node0"
	first := &peer{node: node, address: "10.0.0.1:1", boot: other.Hello.Boot, now: report.ClusterPeer{Node: "node1", State: report.PeerUp}}
	second := &peer{node: node, address: all.addresses[1]}
	node.peers = []*peer{first, second}
	err = second.connect(t.Context())
	if err == nil || !strings.Contains(err.Error(), "it is another address of node") {
		t.Fatalf("got %v", err)
	}
	port := other.listener.Addr().(*net.TCPAddr).Port
	if n := established(t, port); n > 0 {
		t.Errorf("%d connections are still open", n)
	}
}

// TestMoved checks that a node that comes back at another configured address is shown once.
func TestMoved(t *testing.T) {
	t.Parallel()
	for _, places := range [][2]int{{1, 2}, {2, 1}} {
		t.Run(fmt.Sprint(places), func(t *testing.T) {
			t.Parallel()
			all := newNodes(t, 3)
			node, _ := all.start(0, newTable(), nil)
			has := func(state report.PeerState) bool {
				list := node.Status().Peers
				return len(list) == 2 && (list[0].Node == "moving" && list[0].State == state || list[1].Node == "moving" && list[1].State == state)
			}
			var stop func()
			for i, place := range places {
				if i > 0 {
					stop()
					eventually(t, "the node is still there", func() bool { return has(report.PeerDown) })
				}
				f := newTable()
				f.open(0, 7, true)
				_, stop = all.start(place, f, func(c *Config) {
					c.Hello.Node = "moving"
					c.Credentials, _ = transport.KeyFile(all.key, "moving")
				})
				eventually(t, "the node is not there", func() bool { return has(report.PeerUp) })
			}
			eventually(t, "the row of the connected address lacks what has arrived", func() bool {
				for _, p := range node.Status().Peers {
					if p.Node == "moving" && p.State == report.PeerUp && p.Received > 0 {
						return true
					}
				}
				return false
			})
			for _, p := range node.Status().Peers {
				if p.State != report.PeerUp && p.Node != "" {
					t.Errorf("the former address %s still has the name %s, and is %s", p.Address, p.Node, p.State)
				}
			}
		})
	}
}
