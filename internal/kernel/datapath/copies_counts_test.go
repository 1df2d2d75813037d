package datapath

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// TestCopiesCount checks that a node counts the traffic of connections that another node has
// opened, also after they have ended. A search by endpoint finds them, since a drain waits for
// them.
func TestCopiesCount(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, tcpCopies)
	client, vip, endpoint := netip.MustParseAddrPort("198.51.100.1:40000"), netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("192.0.2.1:8080")
	c.open(client, vip, endpoint)
	c.put(c.wait(2)...)
	key := bpf.TcServiceKey{Vip: bpf.Addr(vip.Addr()), Port: bpf.Port(vip.Port()), Protocol: uint8(lb.TCP)}
	c.two.d.EachEndpointID(key, func(_ int, id uint32) { // as if packets were forwarded
		traffic := make([]bpf.TcEndpointTraffic, ebpf.MustPossibleCPU())
		traffic[0].PacketsIn = 3
		if err := c.two.d.collection.EndpointTraffics.Put(id, traffic); err != nil {
			t.Fatal(err)
		}
	})
	found, sought := 0, report.ConnectionQuery{Requests: true, MatchEndpoint: func(_ string, at netip.AddrPort) bool { return at == endpoint }}
	if _, err := c.two.d.ConnectionsFrom(t.Context(), 0, sought, func(report.Connection) bool {
		found++
		return true
	}); err != nil || found != 1 {
		t.Errorf("%d connections with the endpoint, %v, want 1", found, err)
	}
	check := func(when string, active uint64) {
		t.Helper()
		stats, ok := c.two.d.ServiceStats(key)
		if !ok || stats.In.Packets != 3 || stats.Active != active || stats.Connections != 0 {
			t.Errorf("%s: %d packets of clients, %d active connections, %d opened, want 3, %d and 0", when, stats.In.Packets, stats.Active, stats.Connections, active)
		}
	}
	check("while it is open", 1)
	ageOut(t, c.two)
	check("after its end", 0)
}
