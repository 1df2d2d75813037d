package datapath

import (
	"net/netip"
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

const (
	proxyStates = uint8(bpf.TcHopFlagHOP_PROXY_STATES)
	proxyLength = 28
)

// TestCopiesProxy checks that a connection with a header of the PROXY protocol is copied once its
// endpoint has acknowledged the header, and that the copy also tells a node that has seen its SYN.
// Otherwise that node would insert the header into the client's data.
func TestCopiesProxy(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, "10.0.0.1:80/tcp proxy-protocol=true endpoints=192.0.2.1:8080")
	client, vip, endpoint := netip.MustParseAddrPort("198.51.100.1:40000"), netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("192.0.2.1:8080")
	c.run(c.two, dptest.Segment(client, vip, 0x02, 1000, 0)) // the answer is lost, and the client repeats its SYN
	c.run(c.one, dptest.Segment(client, vip, 0x02, 1000, 0))
	c.run(c.one, dptest.Segment(endpoint, client, 0x12, 5000, 1001))
	c.run(c.one, dptest.Segment(client, vip, 0x10, 1001, 5101))
	if found := c.scan(c.one); len(found) != 0 {
		t.Errorf("copies before the header is acknowledged: %+v", found)
	}
	c.run(c.one, dptest.Segment(endpoint, client, 0x10, 5101, 1001+proxyLength))
	c.run(c.one, dptest.Segment(endpoint, client, 0x10, 5201, 1101+proxyLength))
	if sent := c.wait(1); len(sent) != 1 || sent[0].Hop&proxyStates == 0 {
		t.Errorf("copies once the header is acknowledged: %+v", sent)
	}
	found := c.scan(c.one)
	if len(found) != 1 || found[0].Numbers.ReplyAcked != 1101 {
		t.Fatalf("copies of the connection: %+v", found)
	}

	c.wantProxy(found[0], report.CopyMerged)
	other := found[0]
	other.Hop &^= proxyStates
	if got := c.put(other)[0]; got == report.CopyMerged {
		t.Error("a copy without header is merged with a connection that has one")
	}
}

// scan returns the copies that another node gets of all connections of a node.
func (c *twoNodes) scan(o *opener) (found []report.ConnectionCopy) {
	c.t.Helper()
	err := o.d.ScanCopies(c.t.Context(), report.CopySelection{Copies: true}, func(list []report.ConnectionCopy) error {
		found = append(found, list...)
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return found
}

// wantProxy inserts a copy, and checks that both entries record that the endpoint has acknowledged
// the header.
func (c *twoNodes) wantProxy(one report.ConnectionCopy, want report.CopyResult) {
	c.t.Helper()
	if got := c.put(one)[0]; got != want {
		c.t.Errorf("the copy is %v, want %v", got, want)
	}
	rows := dptest.Connections(c.t, c.two.d.collection)
	if len(rows) != 2 {
		c.t.Errorf("%d entries, want 2", len(rows))
	}
	for key, row := range rows {
		if row.Hop&proxyStates != proxyStates {
			c.t.Errorf("%v: hop flags %#x, want %#x", key, row.Hop, proxyStates)
		}
	}
}
