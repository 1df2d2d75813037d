package cluster

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"loxilb/internal/cluster/transport"
	"loxilb/internal/lb/report"
)

const (
	oldKey = "0123456789abcdef0123456789abcdef"
	newKey = "fedcba9876543210fedcba9876543210"
)

// fleet is a cluster of nodes with a key file each.
type fleet struct {
	*nodes
	t       *testing.T
	files   []string
	running []*Node
	tables  []*table
	opened  int
}

func newFleet(t *testing.T, n int) *fleet {
	t.Helper()
	f := &fleet{nodes: newNodes(t, n), t: t}
	for i := range n {
		f.files = append(f.files, keyFile(t, oldKey))
		f.tables = append(f.tables, newTable())
		node, _ := f.start(i, f.tables[i], func(c *Config) {
			var err error
			if c.Credentials, err = transport.KeyFile(f.files[i], c.Hello.Node); err != nil {
				t.Fatal(err)
			}
		})
		f.running = append(f.running, node)
	}
	f.exchanges()
	return f
}

// write replaces the keys of a node, and waits until it uses them.
func (f *fleet) write(i int, keys ...string) {
	f.t.Helper()
	if err := os.WriteFile(f.files[i], []byte("# keys\n\n"+strings.Join(keys, "\n")), 0o600); err != nil {
		f.t.Fatal(err)
	}
	before := f.running[i].Credentials.Config()
	eventually(f.t, "the node does not read its keys", func() bool {
		now := f.running[i].Credentials.Config()
		return !now.Certificates[0].Leaf.Equal(before.Certificates[0].Leaf)
	})
}

// exchanges checks that a new connection of each node arrives at all nodes.
func (f *fleet) exchanges() {
	f.t.Helper()
	for i := range f.tables {
		eventually(f.t, fmt.Sprintf("node %d is not connected to all", i), func() bool {
			up := 0
			for _, p := range f.running[i].Status().Peers {
				if p.State == report.PeerUp {
					up++
				}
			}
			return up == len(f.tables)-1
		})
		f.tables[i].open(f.opened, f.opened+1, false)
		f.opened++
	}
	for i, one := range f.tables {
		eventually(f.t, fmt.Sprintf("node %d does not get all connections", i), func() bool { return one.len() == f.opened })
	}
}

// TestRotation checks that nodes go on while their key is replaced: each one gets the new key, and
// then loses the old one, in any order of lines.
func TestRotation(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	for i := range f.files {
		keys := []string{oldKey, newKey}
		if i == 1 {
			keys = []string{newKey, oldKey}
		}
		f.write(i, keys...)
		f.exchanges()
	}
	for i := range f.files {
		f.write(i, newKey)
		f.exchanges()
	}
	for _, node := range f.running {
		if problems := node.Status().Problems; len(problems) > 0 {
			t.Errorf("a node has the problems %q", problems)
		}
	}
}

// TestReplacedKey checks that nodes without a common key report it immediately, even if they were
// connected, and exchange connections again once both have the new key.
func TestReplacedKey(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	f.write(0, newKey)
	for i, node := range f.running {
		eventually(t, fmt.Sprintf("node %d does not say why it is refused", i), func() bool {
			p := node.Status().Peers[0]
			return p.State == report.PeerRefused && strings.Contains(p.Reason, "--cluster-key")
		})
	}
	f.tables[0].open(f.opened, f.opened+1, false)
	f.opened++
	if got := f.tables[1].len(); got != 2 {
		t.Errorf("a node with another key has got %d connections, want 2", got)
	}
	f.write(1, newKey)
	f.exchanges()
}

// TestDamagedKey checks that a bad key file is reported, and that the keys in use stay.
func TestDamagedKey(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	for contents, want := range map[string]string{
		"short":                           "has a key of 5 characters in line 1",
		oldKey + "\nshort\n":              "has a key of 5 characters in line 2",
		"":                                "has no key",
		strings.Repeat(newKey+"\n", 5):    "has 5 keys",
		strings.Repeat(newKey+"\n", 2000): "more than 65536 bytes",
	} {
		if err := os.WriteFile(f.files[0], []byte(contents), 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the node does not report "+want, func() bool {
			problems := f.running[0].Status().Problems
			return len(problems) == 1 && strings.Contains(problems[0], want)
		})
		f.exchanges()
	}
	if err := os.WriteFile(f.files[0], []byte(oldKey), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the problem stays", func() bool { return len(f.running[0].Status().Problems) == 0 })
	f.exchanges()
}

// TestRefusedPause checks that incompatible nodes retry ever less often.
func TestRefusedPause(t *testing.T) {
	t.Parallel()
	p := &peer{now: report.ClusterPeer{State: report.PeerRefused, Since: time.Now()}}
	for _, c := range []struct{ since, want time.Duration }{{0, maxRetry}, {8 * time.Second, time.Second}, {24 * time.Second, 3 * time.Second}, {time.Hour, maxRefusedRetry}} {
		p.now.Since = time.Now().Add(-c.since)
		wait, retryNow := p.pause(9)
		if wait.Round(100*time.Millisecond) != c.want || retryNow != p.retryNow {
			t.Errorf("after %v the next attempt is in %v, want %v", c.since, wait, c.want)
		}
	}
	p.now.State, p.shortRuns = report.PeerDown, maxShort
	if wait, _ := p.pause(0); wait != minRetry {
		t.Errorf("a lost peer is retried after %v, want %v", wait, minRetry)
	}
	p.shortRuns, p.retryNow = maxShort+1, make(chan struct{})
	if wait, retryNow := p.pause(0); wait != shortWait || retryNow != nil {
		t.Errorf("a flapping peer is retried after %v, want %v", wait, shortWait)
	}
}
