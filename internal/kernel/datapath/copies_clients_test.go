package datapath

import (
	"net/netip"
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

const persistCopies = "10.0.0.7:80-90/tcp select=persist persist-prefix=24 endpoints=192.0.2.1:8080,192.0.2.2:8080,192.0.2.3:8080"

// TestCopiedClients checks that a client of --select=persist has the same endpoint at another node:
// after a copy of its connection, and after the list of clients.
func TestCopiedClients(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, persistCopies)
	vip := netip.MustParseAddrPort("10.0.0.7:85")
	client := netip.MustParseAddrPort("198.51.100.7:40000")
	own := c.endpointFor(c.one, client, vip)
	c.open(client, vip, own)
	elsewhere := c.wait(2)[1]
	elsewhere.Endpoint = otherEndpoint(own)
	if got := c.put(elsewhere)[0]; got != report.CopyInserted {
		t.Fatalf("the copy is %v", got)
	}
	neighbour := netip.MustParseAddrPort("198.51.100.8:40000") // in the same /24
	if got := c.endpointFor(c.two, neighbour, vip); got != elsewhere.Endpoint {
		t.Errorf("the client goes to %v at the other node, not to %v", got, elsewhere.Endpoint)
	}

	var clients []report.ClientCopy
	err := c.two.d.ScanClients(t.Context(), func(list []report.ClientCopy) error {
		clients = append(clients, list...)
		return nil
	})
	if err != nil || len(clients) != 1 {
		t.Fatalf("clients %+v, %v", clients, err)
	}
	want := report.ClientCopy{
		Protocol: 6, Ranged: true, Client: netip.MustParseAddr("198.51.100.0"), VIP: netip.MustParseAddrPort("10.0.0.7:80"),
		Endpoint: elsewhere.Endpoint, Idle: clients[0].Idle,
	}
	if clients[0] != want || want.Idle > time.Minute {
		t.Errorf("client %+v, want %+v", clients[0], want)
	}
	stranger := netip.MustParseAddrPort("203.0.113.1:40000")
	natural := c.endpointFor(c.two, stranger, vip)
	moved, older, gone := clients[0], clients[0], clients[0]
	moved.Client, older.Client, gone.Client = netip.MustParseAddr("203.0.113.0"), netip.MustParseAddr("203.0.113.0"), netip.MustParseAddr("192.0.2.0")
	moved.Endpoint, older.Endpoint, gone.Endpoint = otherEndpoint(natural), natural, netip.MustParseAddrPort("192.0.2.9:8080")
	older.Idle += time.Minute
	var unknown [3]bool
	if err := c.one.d.PutClients(t.Context(), []report.ClientCopy{moved, older, gone}, unknown[:]); err != nil || unknown != [3]bool{2: true} {
		t.Errorf("unknown %v, %v", unknown, err)
	}
	if got := c.endpointFor(c.one, stranger, vip); got != moved.Endpoint {
		t.Errorf("the client goes to %v, not to %v", got, moved.Endpoint)
	}
}

// otherEndpoint returns another endpoint of persistCopies.
func otherEndpoint(than netip.AddrPort) netip.AddrPort {
	if first := netip.MustParseAddrPort("192.0.2.1:8080"); than != first {
		return first
	}
	return netip.MustParseAddrPort("192.0.2.2:8080")
}

// endpointFor sends a client's SYN to a node, and returns the endpoint that gets it.
func (c *twoNodes) endpointFor(o *opener, client, vip netip.AddrPort) (endpoint netip.AddrPort) {
	c.t.Helper()
	c.run(o, dptest.Segment(client, vip, 0x02, 1000, 0))
	for key, row := range dptest.Connections(c.t, o.d.collection) {
		if row.Flags&uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) == 0 && bpf.AddrPort(key.Saddr, key.Sport) == client {
			endpoint = bpf.AddrPort(row.Daddr, row.Dport)
		}
	}
	if !endpoint.IsValid() {
		c.t.Fatalf("%v has no connection to %v", client, vip)
	}
	return endpoint
}

// TestManyClientsExpire checks that a sweep removes expired clients among many, and no others.
func TestManyClientsExpire(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, persistCopies)
	client := report.ClientCopy{Protocol: 6, Ranged: true, VIP: netip.MustParseAddrPort("10.0.0.7:80"), Endpoint: netip.MustParseAddrPort("192.0.2.1:8080")}
	var clients []report.ClientCopy
	for i := range 600 {
		client.Client = netip.AddrFrom4([4]byte{100, byte(i >> 8), byte(i), 0})
		clients = append(clients, client)
	}
	if err := c.one.d.PutClients(t.Context(), clients, make([]bool, len(clients))); err != nil {
		t.Fatal(err)
	}
	remembered := func() (keys []bpf.TcPersistKey, entries []bpf.TcPersistEntry) {
		err := rows.EachBatch(c.one.d.Tables.Persists(), rows.All, func(k []bpf.TcPersistKey, e []bpf.TcPersistEntry) {
			keys, entries = append(keys, k...), append(entries, e...)
		})
		if err != nil {
			t.Fatal(err)
		}
		return keys, entries
	}
	const day = 24 * 3600 * 1000 // jiffies, at the highest rate
	keys, entries := remembered()
	for i := 0; i < len(keys); i += 2 {
		entries[i].Seen -= day
		if err := c.one.d.Tables.Persists().Put(keys[i], entries[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.one.d.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, _ := remembered(); len(keys) != len(clients) || len(left) != len(clients)/2 {
		t.Errorf("got %d clients before the sweep and %d after, want %d and %d", len(keys), len(left), len(clients), len(clients)/2)
	}
}
