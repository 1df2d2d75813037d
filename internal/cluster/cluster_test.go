package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"loxilb/internal/cluster/transport"
	"loxilb/internal/event"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
	"loxilb/test/race"
)

const testTimeout = time.Minute

// nodes starts nodes of a cluster, which know each other.
type nodes struct {
	t         *testing.T
	key       string
	addresses []string
}

// newNodes finds addresses for n nodes.
func newNodes(t *testing.T, n int) *nodes {
	t.Helper()
	all := &nodes{t: t, key: keyFile(t, "0123456789abcdef0123456789abcdef")}
	for range n {
		all.addresses = append(all.addresses, freeAddress(t))
	}
	return all
}

var nextPort atomic.Uint32

// freeAddress returns an address whose port no connection takes by chance until a node listens
// there: it is not of the range that Linux selects from.
func freeAddress(t *testing.T) string {
	t.Helper()
	const first, ports = 10_000, 20_000
	nextPort.CompareAndSwap(0, 1+rand.Uint32N(ports))
	for {
		address := fmt.Sprintf("127.0.0.1:%d", first+nextPort.Add(1)%ports)
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
		if t.Context().Err() != nil {
			t.Fatal("no port is free")
		}
	}
}

func keyFile(t testing.TB, key string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// start starts a node, and returns how to stop it.
func (n *nodes) start(i int, f *table, edit func(*Config)) (*Node, func()) {
	n.t.Helper()
	name := fmt.Sprintf("node%d", i)
	credentials, err := transport.KeyFile(n.key, name)
	if err != nil {
		n.t.Fatal(err)
	}
	c := Config{
		Peers: n.addresses, Listen: n.addresses[i], Credentials: credentials, Table: f, Events: (*event.Hub)(nil), Log: slog.New(slog.DiscardHandler),
		Hello: transport.Hello{Node: name, Self: i, Boot: fmt.Sprintf("boot of %d at %p", i, f), Seed: transport.Fingerprint(0), Slots: 509},
	}
	if edit != nil {
		edit(&c)
	}
	node, err := New(c)
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		node.Run(ctx)
	}()
	stop := func() {
		cancel()
		<-done
	}
	n.t.Cleanup(stop)
	return node, stop
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(testTimeout); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s, within %v", what, testTimeout)
		}
	}
}

// TestExchange checks that each node gets the connections of all others: those before it joins, new
// ones, and those whose events were lost; and that a node which has lost its table gets back its
// own.
func TestExchange(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 3)
	tables := []*table{newTable(), newTable(), newTable()}
	tables[0].open(0, 3000, false)
	var stops []func()
	for i, f := range tables {
		node, stop := all.start(i, f, nil)
		stops = append(stops, stop)
		if i > 0 {
			<-node.Joined()
			if f.len() < 3000 || f.expected < 3000 {
				t.Errorf("node %d has joined with %d connections of 3000, and room for %d", i, f.len(), f.expected)
			}
		}
	}
	tables[1].open(3000, 3100, false)
	tables[2].open(3100, 3200, true)
	for i, f := range tables {
		eventually(t, fmt.Sprintf("node %d does not get all connections", i), func() bool { return f.len() == 3200 })
	}
	stops[0]()
	again := newTable()
	again.fresh = true
	node, _ := all.start(0, again, nil)
	<-node.Joined()
	if again.len() != 3200 {
		t.Errorf("a node that has lost its table has joined with %d connections of 3200", again.len())
	}
}

// TestSetNodes checks that a node exchanges connections with nodes that are created while it runs,
// and no longer with those that are deleted.
func TestSetNodes(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 2)
	one, two := newTable(), newTable()
	alone := func(c *Config) { c.Peers = nil }
	first, _ := all.start(0, one, alone)
	second, _ := all.start(1, two, alone)
	<-first.Joined()
	<-second.Joined()
	one.open(0, 10, false)
	first.SetNodes(all.addresses[1:])
	eventually(t, "the created node does not get the connections", func() bool { return two.len() == 10 })
	first.SetNodes(nil)
	eventually(t, "the deleted node is still there", func() bool { return len(first.Status().Peers) == 0 })
	one.open(10, 20, false)
	first.SetNodes(all.addresses[1:])
	eventually(t, "the node does not come back", func() bool { return two.len() == 20 })
}

// TestClients checks that a node that joins gets the clients of services that remember them, those
// of a service that is not here yet as soon as it is.
func TestClients(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 2)
	one, two := newTable(), newTable()
	c := connection(1)
	later := netip.MustParseAddrPort("20.20.20.2:80")
	for _, vip := range []netip.AddrPort{c.VIP, later} {
		one.clients = append(one.clients, report.ClientCopy{Protocol: lb.TCP, Client: c.Client.Addr(), VIP: vip, Endpoint: c.Endpoint, Idle: time.Hour})
	}
	want := one.clients[0]
	two.unknown[later] = true
	all.start(0, one, nil)
	node, _ := all.start(1, two, nil)
	<-node.Joined()
	known := func() int {
		two.mu.Lock()
		defer two.mu.Unlock()
		return len(two.clients)
	}
	if n := known(); n != 1 {
		t.Errorf("the node has joined with %d clients, not 1", n)
	}
	two.mu.Lock()
	delete(two.unknown, later)
	two.mu.Unlock()
	eventually(t, "a client does not wait for its service", func() bool { return known() == 2 })
	two.mu.Lock()
	defer two.mu.Unlock()
	if got := two.clients[0]; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestSlowPeer checks that a peer which takes nothing costs a bounded queue, and gets all
// connections once it does.
func TestSlowPeer(t *testing.T) {
	t.Parallel()
	race.Skip(t)
	all := newNodes(t, 2)
	fast, slow := newTable(), newTable()
	node, _ := all.start(0, fast, nil)
	all.start(1, slow, nil)
	eventually(t, "the nodes are not connected", func() bool { return len(node.Status().Peers) == 1 && node.Status().Peers[0].State == report.PeerUp })
	release := make(chan struct{})
	slow.mu.Lock()
	slow.block = release
	slow.mu.Unlock()
	const each, most = 5000, 300_000
	for from := 0; from < most; from += each {
		fast.open(from, from+each, false)
	}
	queued := 0
	eventually(t, "the queue does not fill, nor is the peer given up", func() bool {
		p := node.Status().Peers[0]
		queued = max(queued, p.Queued)
		return queued > MaxQueue/2 || p.State != report.PeerUp
	})
	if queued > MaxQueue {
		t.Errorf("%d bytes are queued, more than %d", queued, MaxQueue)
	}
	close(release)
	for had := -1; had < most; { // on a busy machine, all of them take minutes
		eventually(t, "the peer gets no more connections", func() bool { return slow.len() > had })
		had = slow.len()
	}
}

// TestParked checks that copies wait for their service.
func TestParked(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 2)
	one, two := newTable(), newTable()
	two.unknown[connection(0).VIP] = true
	one.open(0, 10, false)
	all.start(0, one, nil)
	node, _ := all.start(1, two, nil)
	eventually(t, "no copies are parked", func() bool {
		s := node.Status()
		return len(s.Peers) == 1 && s.Peers[0].Parked >= 10
	})
	two.mu.Lock()
	clear(two.unknown)
	two.mu.Unlock()
	eventually(t, "parked copies are not inserted", func() bool { return two.len() == 10 && node.Status().Peers[0].Parked == 0 })
}

// TestDropped checks that a node gets connections whose records found no place to wait in, once it
// has their service.
func TestDropped(t *testing.T) {
	t.Parallel()
	const connections = 2 * maxParked
	all := newNodes(t, 2)
	one, two := newTable(), newTable()
	two.unknown[connection(0).VIP] = true
	one.silent.Store(true)
	for i := range connections { // no events report them
		c := connection(i)
		one.rows[c.Client], one.own[c.Client] = c, true
	}
	var configured atomic.Bool
	state := func(own func() bool) func(*Config) {
		return func(c *Config) {
			c.Revision = func() uint64 {
				if own() {
					return 2
				}
				return 1
			}
			c.State = func(bool) State {
				services := map[string]string{"30.30.30.30:80/tcp": "same"}
				if own() {
					services["20.20.20.1:80/tcp"] = "same"
				}
				return State{Services: services}
			}
		}
	}
	all.start(0, one, state(func() bool { return true }))
	node, _ := all.start(1, two, state(configured.Load))
	eventually(t, "no copies are dropped", func() bool {
		s := node.Status()
		return len(s.Peers) == 1 && s.Peers[0].Parked+int(s.Peers[0].Dropped) >= connections && s.Peers[0].Dropped >= maxParked
	})
	two.mu.Lock()
	clear(two.unknown)
	two.mu.Unlock()
	configured.Store(true)
	eventually(t, "dropped copies are not inserted", func() bool { return two.len() == connections })
}

// TestRefused checks that nodes which do not fit each other say why, and exchange nothing.
func TestRefused(t *testing.T) {
	t.Parallel()
	for want, edit := range map[string]func(*Config){
		`both nodes are named "node0"`: func(c *Config) {
			c.Hello.Node = "node0"
			c.Credentials, _ = transport.KeyFile(keyFile(t, "0123456789abcdef0123456789abcdef"), "node0")
		},
		"both have --self=0":                   func(c *Config) { c.Hello.Self = 0 },
		"have different values of --hash-seed": func(c *Config) { c.Hello.Seed = transport.Fingerprint(1) },
		"slots for the algorithm hash":         func(c *Config) { c.Hello.Slots = 1021 },
		"has another --cluster-key":            func(c *Config) { c.Credentials, _ = transport.KeyFile(keyFile(t, strings.Repeat("x", 32)), "node1") },
		`has a certificate for ["other"], not for`: func(c *Config) {
			c.Credentials, _ = transport.KeyFile(keyFile(t, "0123456789abcdef0123456789abcdef"), "other")
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			all := newNodes(t, 2)
			one, two := newTable(), newTable()
			one.open(0, 10, false)
			all.start(0, one, nil)
			node, _ := all.start(1, two, edit)
			eventually(t, "the node does not say why it is refused", func() bool {
				for _, p := range node.Status().Peers {
					if p.State == report.PeerRefused && strings.Contains(p.Reason, want) {
						return true
					}
				}
				return false
			})
			if two.len() > 0 {
				t.Errorf("%d connections were exchanged", two.len())
			}
		})
	}
}

// TestVersions checks that nodes work together if they have a version of the protocol in common.
func TestVersions(t *testing.T) {
	t.Parallel()
	hello := func(node string, oldest, newest int) *transport.Hello {
		return &transport.Hello{Node: node, Boot: node, Self: -1, Oldest: oldest, Version: newest}
	}
	for _, c := range []struct {
		oldest, newest int
		fits           bool
	}{{2, 3, true}, {1, 2, true}, {3, 4, true}, {4, 5, false}, {0, 1, false}} {
		err := hello("one", 2, 3).CheckCompatible(hello("two", c.oldest, c.newest))
		if (err == nil) != c.fits || err != nil && !strings.Contains(err.Error(), "upgrade one version after the other") {
			t.Errorf("versions 2 to 3 and %d to %d: %v", c.oldest, c.newest, err)
		}
	}
}

// TestKeyFile checks that weak keys, and those that others can read, are refused.
func TestKeyFile(t *testing.T) {
	t.Parallel()
	if _, err := transport.KeyFile(keyFile(t, "short"), "a"); err == nil || !strings.Contains(err.Error(), "has a key of 5 characters in line 1, of at least 32") {
		t.Errorf("a short key: %v", err)
	}
	open := keyFile(t, strings.Repeat("k", 64))
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := transport.KeyFile(open, "a"); err == nil || !strings.Contains(err.Error(), "has mode 0644: others can read the key") {
		t.Errorf("a readable key: %v", err)
	}
	if _, err := transport.KeyFile("/nowhere", "a"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no file: %v", err)
	}
}
