package datapath

import (
	"net/netip"
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

// TestCopiesClose checks that a connection is closed whose client's packets pass one node, and
// those of its endpoint another one: each sees one FIN, and the acknowledgement of the other one
// before it knows this.
func TestCopiesClose(t *testing.T) {
	t.Parallel()
	client, vip, endpoint := netip.MustParseAddrPort("198.51.100.1:40000"), netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("192.0.2.1:8080")
	for _, step := range []struct {
		name    string
		ack     uint32 // the client's last
		remains uint64 // active connections
	}{{"closed", 5202, 0}, {"the endpoint's FIN is lost", 5101, 1}} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			c := newCopied(t, tcpCopies)
			source := c.open(client, vip, endpoint)
			c.put(c.wait(2)...)
			c.run(c.one, dptest.Segment(client, vip, 0x11, 1201, 5101))
			c.run(c.two, dptest.Segment(endpoint, source, 0x11, 5101, 1302))
			c.run(c.one, dptest.Segment(client, vip, 0x10, 1202, step.ack))
			before, other := c.scan(c.one), c.scan(c.two)
			if fins := report.FlagsFIN; len(before) != 1 || len(other) != 1 || before[0].Flags&uint8(fins) != uint8(bpf.TcConnectionFlagCONN_FIN_CLIENT) ||
				other[0].Flags&uint8(fins) != uint8(bpf.TcConnectionFlagCONN_FIN_ENDPOINT) {
				t.Fatalf("the nodes have %+v and %+v, want a FIN each", before, other)
			}
			results := make([]report.CopyResult, 1)
			if err := c.one.d.PutCopies(t.Context(), other, results); err != nil || results[0] != report.CopyMerged {
				t.Fatalf("%v, %v", results, err)
			}
			c.put(before...)
			for i, o := range []*opener{c.one, c.two} {
				if got := o.active()[0]; got != step.remains {
					t.Errorf("node %d has %d active connections, want %d", i, got, step.remains)
				}
			}
		})
	}
}
