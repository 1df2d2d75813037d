package datapath

import (
	"net/netip"
	"slices"
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

// TestCopiesClose checks that a connection is closed if its client's packets pass one node, and its
// endpoint's packets another one: each node sees one FIN, and the acknowledgement of the other FIN
// before that FIN is known there. Both nodes send copies; nodes that only have copies send none.
func TestCopiesClose(t *testing.T) {
	t.Parallel()
	client, vip, endpoint := netip.MustParseAddrPort("198.51.100.1:40000"), netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("192.0.2.1:8080")
	for _, step := range []struct {
		name    string
		fin     uint8  // of the endpoint
		acks    uint32 // of the endpoint
		ack     uint32 // the client's last
		remains uint64 // active connections
	}{
		{"closed", 1, 1302, 5202, 0},
		{"the client's FIN is lost", 1, 1201, 5202, 1},
		{"the endpoint's FIN is lost", 1, 1302, 5101, 1},
		{"half-closed", 0, 1302, 5201, 1},
	} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			c := newTwoNodes(t, tcpCopies)
			source := c.open(client, vip, endpoint)
			c.put(c.wait(2)...)
			c.run(c.one, dptest.Segment(client, vip, 0x11, 1201, 5101))
			c.run(c.two, dptest.Segment(endpoint, source, 0x10|step.fin, 5101, step.acks))
			c.run(c.one, dptest.Segment(client, vip, 0x10, 1202, step.ack))
			before, other := c.scan(c.one), c.scan(c.two)
			if fins := report.FlagsFIN; len(before) != 1 || len(other) != 1 || before[0].Flags&uint8(fins) != uint8(bpf.TcConnectionFlagCONN_FIN_CLIENT) ||
				other[0].Flags&uint8(fins) != step.fin*uint8(bpf.TcConnectionFlagCONN_FIN_ENDPOINT) {
				t.Fatalf("the nodes have %+v and %+v, want a FIN each", before, other)
			}
			c.closeAtFirst(before[0], other[0])
			if step.remains == 0 {
				if sent := c.wait(3); sent[2].Client != client || !sent[2].IsClosed() {
					t.Errorf("the copy of the end is %+v", sent[2])
				}
			}
			c.put(before...)
			for i, o := range []*opener{c.one, c.two} {
				if got, want := o.active()[0], step.remains*uint64(2-i); got != want { // and the foreign one
					t.Errorf("node %d has %d active connections, want %d", i, got, want)
				}
			}
		})
	}
}

// closeAtFirst inserts copies of a connection at the first node, as if its packets had been
// forwarded there: first its own, then those of another node.
func (c *twoNodes) closeAtFirst(own, copied report.ConnectionCopy) {
	c.t.Helper()
	if err := dptest.ChangeConnections(c.one.d.collection.Conntrack, func(_ bpf.TcConnectionKey, row *bpf.TcConnection) bool {
		row.Packets = 1
		return true
	}); err != nil {
		c.t.Fatal(err)
	}
	list, results := []report.ConnectionCopy{own, copied, copied}, make([]report.CopyResult, 3)
	for i := range 2 {
		for _, at := range []*netip.AddrPort{&list[i].Client, &list[i].Source} {
			*at = netip.AddrPortFrom(at.Addr(), at.Port()+1)
		}
	}
	want := []report.CopyResult{report.CopyInserted, report.CopyMerged, report.CopyMerged}
	if err := c.one.d.PutCopies(c.t.Context(), list, results); err != nil || !slices.Equal(results, want) {
		c.t.Fatalf("%v, want %v: %v", results, want, err)
	}
}
