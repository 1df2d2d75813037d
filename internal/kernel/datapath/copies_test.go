package datapath

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/control/compile"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

// twoNodes is two nodes with the same service, and the copies that the first one has sent.
type twoNodes struct {
	t        *testing.T
	one, two *opener
	mu       sync.Mutex
	sent     []report.ConnectionCopy
	arrived  chan struct{}
}

func newTwoNodes(t *testing.T, services ...string) *twoNodes {
	t.Helper()
	c := &twoNodes{t: t, one: newOpener(t, services[0]), two: newOpener(t, services[0]), arrived: make(chan struct{}, 1)}
	for _, line := range services[1:] {
		addService(t, c.one, line)
		addService(t, c.two, line)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- c.one.d.WatchCopies(ctx, func(list []report.ConnectionCopy, lost uint64) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.sent = append(c.sent, list...)
			if lost > 0 {
				t.Errorf("%d copies are lost", lost)
			}
			select {
			case c.arrived <- struct{}{}:
			default:
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	c.awaitWatch()
	return c
}

// awaitWatch waits until the first node's programs send copies.
func (c *twoNodes) awaitWatch() {
	c.t.Helper()
	for {
		var on uint32
		if err := c.one.d.collection.Variables.Copying.Get(&on); err != nil {
			c.t.Fatal(err)
		}
		if on == 1 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func addService(t *testing.T, o *opener, line string) {
	t.Helper()
	openerOf(t, o.d, parseService(t, line))
}

// run runs the program of a node on a packet.
func (c *twoNodes) run(o *opener, frame []byte) (out []byte) {
	c.t.Helper()
	opts := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, 512)}
	if _, err := program(c.t, o.d).Run(opts); err != nil {
		c.t.Fatal(err)
	}
	return opts.DataOut
}

// wait waits for n copies, and returns all that were sent.
func (c *twoNodes) wait(n int) []report.ConnectionCopy {
	c.t.Helper()
	for end := time.After(10 * time.Second); ; {
		c.mu.Lock()
		list := append([]report.ConnectionCopy(nil), c.sent...)
		c.mu.Unlock()
		if len(list) >= n {
			return list
		}
		select {
		case <-c.arrived:
		case <-end:
			c.t.Fatalf("%d copies, want %d", len(list), n)
		}
	}
}

// put inserts copies at the second node.
func (c *twoNodes) put(list ...report.ConnectionCopy) []report.CopyResult {
	c.t.Helper()
	results := make([]report.CopyResult, len(list))
	if err := c.two.d.PutCopies(c.t.Context(), list, results); err != nil {
		c.t.Fatal(err)
	}
	return results
}

// open opens a TCP connection at the first node, and returns the source address and port that the
// endpoint sees.
func (c *twoNodes) open(client, vip, endpoint netip.AddrPort) (source netip.AddrPort) {
	c.t.Helper()
	c.run(c.one, dptest.Segment(client, vip, 0x02, 1000, 0))
	for key, row := range dptest.Connections(c.t, c.one.d.collection) {
		if row.Flags&uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) == 0 && bpf.AddrPort(key.Saddr, key.Sport) == client {
			source = bpf.AddrPort(row.Saddr, row.Sport)
		}
	}
	c.run(c.one, dptest.Segment(endpoint, source, 0x12, 5000, 1101))
	c.run(c.one, dptest.Segment(client, vip, 0x10, 1101, 5101))
	return source
}

// entries returns the table of a node, without data that differs between nodes.
func (c *twoNodes) entries(o *opener) map[bpf.TcConnectionKey]bpf.TcConnection {
	c.t.Helper()
	out := map[bpf.TcConnectionKey]bpf.TcConnection{}
	for key, row := range dptest.Connections(c.t, o.d.collection) {
		row.Seen, row.Way, row.WayEpoch, row.Packets, row.Bytes, row.Endpoint = 0, 0, 0, 0, 0, 0
		row.Traits &^= uint8(bpf.TcConnectionTraitCONN_SENT_RST) // the node that has sent the RST
		row.Hop &= uint8(bpf.TcHopFlagHOP_FAMILY | bpf.TcHopFlagHOP_TUNNELS)
		out[key] = row
	}
	return out
}

// wantSame checks that both nodes have the same entries.
func (c *twoNodes) wantSame() {
	c.t.Helper()
	one, two := c.entries(c.one), c.entries(c.two)
	if len(one) != len(two) {
		c.t.Errorf("%d entries, and %d at the other node", len(one), len(two))
	}
	for key, row := range one {
		if two[key] != row {
			c.t.Errorf("%v:\n%+v\nat the other node\n%+v", key, row, two[key])
		}
	}
}

const tcpCopies = "10.0.0.1:80/tcp endpoints=192.0.2.1:8080"

// TestCopies checks that connections appear at another node as at the node that has opened them.
func TestCopies(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, tcpCopies,
		"10.0.0.2:80/tcp mode=fullnat endpoints=192.0.2.1:8080",
		"10.0.0.3:80/tcp mode=fullnat snat=10.9.9.9 endpoints=192.0.2.1:8080",
		"10.0.0.4:80-90/tcp endpoints=192.0.2.1:180-190",
		"[2001:db8::1]:80/tcp endpoints=[2001:db8:1::1]:8080",
		"10.0.0.5:53/udp endpoints=192.0.2.1:53",
		"10.0.0.11:69/udp helper=tftp endpoints=192.0.2.1:69",
		"10.0.0.6:80/tcp mode=dsr endpoints=192.0.2.1:80",
		"10.0.0.12:2020/sctp mode=dsr endpoints=192.0.2.1:2020",
		"10.0.0.7:80/tcp mode=onearm snat=10.9.9.8 endpoints=192.0.2.1:8080",
		"[2001:db8::64]:80/tcp mode=onearm snat=10.9.9.7 endpoints=192.0.2.1:8080",
		"10.0.0.10:80/tcp select=persist endpoints=192.0.2.1:8080,192.0.2.2:8080",
		"10.0.0.8:80/tcp mode=onearm snat=2001:db8:9::9 endpoints=[2001:db8:1::1]:8080",
	)
	for _, one := range [...]struct{ name, client, vip, endpoint string }{
		{"default", "198.51.100.1:40000", "10.0.0.1:80", "192.0.2.1:8080"},
		{"fullnat", "198.51.100.1:40000", "10.0.0.2:80", "192.0.2.1:8080"},
		{"pool", "198.51.100.1:40000", "10.0.0.3:80", "192.0.2.1:8080"},
		{"range", "198.51.100.1:40000", "10.0.0.4:85", "192.0.2.1:185"},
		{"ipv6", "[2001:db8:2::1]:40000", "[2001:db8::1]:80", "[2001:db8:1::1]:8080"},
		{"onearm", "198.51.100.1:40000", "10.0.0.7:80", "192.0.2.1:8080"},
		{"nat64", "[2001:db8:2::1]:40000", "[2001:db8::64]:80", "192.0.2.1:8080"},
		{"nat46", "198.51.100.1:40000", "10.0.0.8:80", "[2001:db8:1::1]:8080"},
	} {
		c.subtest(t, one.name, func() {
			c.wholeLife(netip.MustParseAddrPort(one.client), netip.MustParseAddrPort(one.vip), netip.MustParseAddrPort(one.endpoint))
		})
	}
	c.subtest(t, "udp", c.udp)
	c.subtest(t, "related", c.related)
	c.subtest(t, "dsr", c.dsr)
	c.subtest(t, "sctp one-way", c.sctpOneWay)
	c.subtest(t, "serves", c.usedCopies)
	c.subtest(t, "generations", c.generations)
	c.subtest(t, "unknown", c.unknown)
	c.subtest(t, "persist", c.persist)
}

// persist checks that a client's next connection through another node has the endpoint of its last
// one, even if its hash selects another endpoint.
func (c *twoNodes) persist() {
	vip := netip.MustParseAddrPort("10.0.0.10:80")
	chosen := func(client netip.AddrPort) netip.AddrPort {
		c.run(c.two, dptest.Segment(client, vip, 0x02, 1000, 0))
		for key, row := range dptest.Connections(c.t, c.two.d.collection) {
			if row.Flags&uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) == 0 && bpf.AddrPort(key.Saddr, key.Sport) == client {
				return bpf.AddrPort(row.Daddr, row.Dport)
			}
		}
		c.t.Fatalf("%s has no connection", client)
		return client
	}
	endpoints := [2]netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:8080"), netip.MustParseAddrPort("192.0.2.2:8080")}
	for i := range byte(4) {
		client := netip.AddrFrom4([4]byte{198, 51, 100, i})
		want := endpoints[i%2]
		from := netip.AddrPortFrom(client, 40000)
		results := c.put(report.ConnectionCopy{
			Protocol: lb.TCP, Client: from, VIP: vip, Source: from, Endpoint: want,
			Flags: 6, Generation: 1, Numbers: report.TCPNumbers{Sent: 1, ReplySent: 2, ReplyAcked: 1, Acked: 2},
		})
		if results[0] != report.CopyInserted {
			c.t.Errorf("the copy of %s: %v", from, results[0])
		}
		if got := chosen(netip.AddrPortFrom(client, 40001)); got != want {
			c.t.Errorf("%s gets %s, want %s, the endpoint of its connection through another node", client, got, want)
		}
	}
}

// subtest runs a subtest, which begins and ends with empty tables.
func (c *twoNodes) subtest(t *testing.T, name string, f func()) {
	t.Helper()
	outer := c.t
	t.Run(name, func(t *testing.T) {
		c.t = t
		f()
		for _, o := range []*opener{c.one, c.two} {
			ageOut(t, o)
			if left := c.entries(o); len(left) != 0 {
				t.Errorf("entries after all have expired: %v", left)
			}
			for i, active := range o.active() {
				if active != 0 {
					t.Errorf("endpoint %d has %d active connections after all have expired", i, active)
				}
			}
			if n := halfOpens(t, o.d); n != [2]int64{} {
				t.Errorf("%v half-open connections after all have expired", n)
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sent = nil
	})
	c.t = outer
}

// wholeLife copies a TCP connection from its beginning to its end.
func (c *twoNodes) wholeLife(client, vip, endpoint netip.AddrPort) {
	source := c.open(client, vip, endpoint)
	sent := c.wait(2)
	if len(sent) != 2 {
		c.t.Fatalf("%d copies of an established connection, want 2: %+v", len(sent), sent)
	}
	if sent[1].Endpoint != endpoint || sent[1].Source != source || sent[1].Client != client || sent[1].VIP != vip {
		c.t.Errorf("the copy is %+v", sent[1])
	}
	// in the wrong order, and twice
	for i, want := range []report.CopyResult{report.CopyInserted, report.CopyMerged, report.CopyMerged} {
		if got := c.put(sent[1-i%2])[0]; got != want {
			c.t.Errorf("copy %d: %v, want %v", i, got, want)
		}
	}
	c.wantSame()
	for range 10 { // established
		c.run(c.one, dptest.Segment(client, vip, 0x10, 1101, 5101))
	}
	c.run(c.one, dptest.Segment(client, vip, 0x14, 1101, 5101))
	sent = c.wait(3)
	if got := c.put(sent[2])[0]; got != report.CopyMerged || len(sent) != 3 {
		c.t.Errorf("%d copies, the RST's: %v", len(sent), got)
	}
	c.wantSame()
}

// udp copies a flow when its endpoint has answered, and when its client has sent another packet.
func (c *twoNodes) udp() {
	client, vip, endpoint := netip.MustParseAddrPort("198.51.100.1:40000"), netip.MustParseAddrPort("10.0.0.5:53"), netip.MustParseAddrPort("192.0.2.1:53")
	frame := func(from, to netip.AddrPort) []byte {
		return dptest.UDPFrame(from.Addr(), to.Addr(), from.Port(), to.Port())
	}
	c.run(c.one, frame(client, vip))
	c.run(c.one, frame(endpoint, client))
	c.put(c.wait(1)...)
	c.wantSame()
	for range 3 {
		c.run(c.one, frame(client, vip))
		c.run(c.one, frame(endpoint, client))
	}
	sent := c.wait(2)
	c.put(sent[1:]...)
	c.wantSame()
	if len(sent) != 2 {
		c.t.Errorf("%d copies of a flow, want 2", len(sent))
	}
}

// related checks that a connection that a TFTP server opens is not copied: the other node has no
// service at its addresses, and would keep the copy until one is created.
func (c *twoNodes) related() {
	client, server := netip.MustParseAddrPort("198.51.100.1:40000"), netip.MustParseAddrPort("192.0.2.1:50000")
	frame := func(from, to netip.AddrPort) []byte {
		return dptest.UDPFrame(from.Addr(), to.Addr(), from.Port(), to.Port())
	}
	c.run(c.one, frame(client, netip.MustParseAddrPort("10.0.0.11:69")))
	c.run(c.one, frame(server, client))
	c.run(c.one, frame(client, netip.MustParseAddrPort("10.0.0.11:50000")))
	if rows := dptest.Connections(c.t, c.one.d.collection); len(rows) != 4 {
		c.t.Errorf("%d entries of a request and its answer, want 4", len(rows))
	}
	other := netip.MustParseAddrPort("10.0.0.5:53")
	c.run(c.one, frame(client, other))
	c.run(c.one, frame(netip.MustParseAddrPort("192.0.2.1:53"), client))
	if sent := c.wait(1); sent[0].VIP != other {
		c.t.Errorf("the copy is %+v", sent[0])
	}
	c.put(c.wait(1)...)
}

// dsr copies a connection with packets of the client only.
func (c *twoNodes) dsr() {
	client, vip := netip.MustParseAddrPort("198.51.100.1:40000"), netip.MustParseAddrPort("10.0.0.6:80")
	c.run(c.one, dptest.Segment(client, vip, 0x02, 1000, 0))
	c.run(c.one, dptest.Segment(client, vip, 0x10, 1101, 5001))
	c.run(c.one, dptest.Segment(client, vip, 0x10, 1201, 5101))
	c.put(c.wait(2)...)
	c.wantSame()
}

// usedCopies checks that packets use a copied connection, which is not counted as a new one. The
// node sends copies of it to others only after such packets.
func (c *twoNodes) usedCopies() {
	client, vip, endpoint := netip.MustParseAddrPort("198.51.100.1:40000"), netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("192.0.2.1:8080")
	c.open(client, vip, endpoint)
	c.put(c.wait(2)[1])
	if found := c.scanned(report.CopySelection{}); len(found) != 0 {
		c.t.Errorf("a copy without packets is sent to others: %+v", found)
	}
	if found := c.scanned(report.CopySelection{Copies: true}); len(found) != 1 {
		c.t.Errorf("%d copies for a node that has lost its table, want 1", len(found))
	}
	before, _ := c.two.d.ServiceStats(compile.Key(c.two.service.Key))
	c.run(c.two, dptest.Segment(client, vip, 0x11, 1101, 5101)) // FIN
	c.run(c.two, dptest.Segment(endpoint, client, 0x11, 5101, 1202))
	var ended int
	for _, row := range dptest.Connections(c.t, c.two.d.collection) {
		const fins = uint8(bpf.TcConnectionFlagCONN_FIN_CLIENT | bpf.TcConnectionFlagCONN_FIN_ENDPOINT)
		if row.Flags&fins == fins {
			ended++
		}
	}
	if ended != 2 {
		c.t.Errorf("%d entries of the copy have seen both FINs, want 2", ended)
	}
	if after, _ := c.two.d.ServiceStats(compile.Key(c.two.service.Key)); after.Connections != before.Connections {
		c.t.Errorf("the other node has opened %d connections", after.Connections-before.Connections)
	}
}

// scanned returns the connections that a scan of the second node finds.
func (c *twoNodes) scanned(what report.CopySelection) (found []report.ConnectionCopy) {
	c.t.Helper()
	err := c.two.d.ScanCopies(c.t.Context(), what, func(list []report.ConnectionCopy) error {
		found = append(found, list...)
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return found
}

// generations checks that the copy of an earlier connection of the same client's port changes
// nothing, and that the copy of a later one replaces it.
func (c *twoNodes) generations() {
	client, vip, endpoint := netip.MustParseAddrPort("198.51.100.1:40000"), netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("192.0.2.1:8080")
	c.open(client, vip, endpoint)
	now := c.wait(2)[1]
	earlier := now
	earlier.Generation++
	earlier.Idle = time.Minute
	earlier.Flags |= uint8(bpf.TcConnectionFlagCONN_RESET)
	later := now
	later.Generation += 2
	later.Idle = 0
	later.Numbers.Sent += 100_000
	now.Idle = time.Second
	for i, one := range []struct {
		copy report.ConnectionCopy
		want report.CopyResult
	}{{now, report.CopyInserted}, {earlier, report.CopyOld}, {now, report.CopyMerged}, {later, report.CopyInserted}, {now, report.CopyOld}} {
		if got := c.put(one.copy)[0]; got != one.want {
			c.t.Errorf("copy %d: %v, want %v", i, got, one.want)
		}
	}
	if rows := dptest.Connections(c.t, c.two.d.collection); len(rows) != 2 {
		c.t.Errorf("%d entries, want 2", len(rows))
	}
	if active := c.two.active(); active[0] != 1 {
		c.t.Errorf("%d active connections, want 1", active[0])
	}
}

// unknown checks that copies of missing services and endpoints, and invalid copies, change nothing.
func (c *twoNodes) unknown() {
	client, vip, endpoint := netip.MustParseAddrPort("198.51.100.1:40000"), netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("192.0.2.1:8080")
	c.open(client, vip, endpoint)
	good := c.wait(2)[1]
	service, target, port, mark, family := good, good, good, good, good
	service.VIP = netip.MustParseAddrPort("10.0.0.9:80")
	target.Endpoint = netip.MustParseAddrPort("192.0.2.2:8080")
	port.Endpoint = netip.MustParseAddrPort("192.0.2.1:8081")
	mark.Mark = 7
	family.Source = netip.MustParseAddrPort("[2001:db8::1]:8081")
	for i, got := range c.put(service, target, port, mark, family) {
		if got != report.CopyUnknown {
			c.t.Errorf("copy %d: %v", i, got)
		}
	}
	if rows := dptest.Connections(c.t, c.two.d.collection); len(rows) != 0 {
		c.t.Errorf("%d entries of copies that cannot be used", len(rows))
	}
}

// ageOut makes all connections expire, and sweeps.
func ageOut(t *testing.T, o *opener) {
	t.Helper()
	if err := dptest.AgeConnections(o.d.collection.Conntrack, o.d.collection.Jiffies(3*time.Hour)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := o.d.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCopyFlags checks that report's flags of copies equal those of the packet path.
func TestCopyFlags(t *testing.T) {
	t.Parallel()
	acked := bpf.TcConnectionFlagCONN_FIN_CLIENT_ACKED | bpf.TcConnectionFlagCONN_FIN_ENDPOINT_ACKED
	if report.FlagsAcked != acked || report.FlagReset != bpf.TcConnectionFlagCONN_RESET {
		t.Errorf("flags are %#x and %#x, want %#x and %#x", report.FlagsAcked, report.FlagReset, acked, bpf.TcConnectionFlagCONN_RESET)
	}
}
