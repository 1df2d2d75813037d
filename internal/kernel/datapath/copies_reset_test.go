package datapath

import (
	"net/netip"
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

// TestCopiesReset checks that a node resets a connection that another node has reset without
// knowing this node's packets: the RSTs of the other node had old sequence numbers, so both ends
// have ignored them.
func TestCopiesReset(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, tcpCopies)
	vip, endpoint := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("192.0.2.1:8080")
	for i, step := range []struct {
		client string
		after  bool // the connection continues through the second node
		want   report.CopyResult
	}{
		{"198.51.100.1:40000", true, report.CopyOutrun},
		{"198.51.100.1:40001", false, report.CopyMerged},
	} {
		client := netip.MustParseAddrPort(step.client)
		c.open(client, vip, endpoint)
		sent := c.wait(2 * (i + 1))
		last := sent[len(sent)-1]
		c.put(last)
		if step.after {
			c.run(c.two, dptest.Segment(client, vip, 0x10, 1201, 5101))
		}
		last.Flags |= uint8(bpf.TcConnectionFlagCONN_RESET)
		for _, want := range []report.CopyResult{step.want, report.CopyMerged} { // a repeated copy changes nothing
			if got := c.put(last)[0]; got != want {
				t.Errorf("%s: the copy of the reset connection: %v, want %v", client, got, want)
			}
		}
	}
}
