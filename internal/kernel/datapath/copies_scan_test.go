package datapath

import (
	"net/netip"
	"testing"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// TestScanCopies checks that a scan finds each connection once although adjacent buckets have many
// more than fit its ring: it stops in time.
func TestScanCopies(t *testing.T) {
	t.Parallel()
	const many = 20_000
	// emptying a borrowed one again would take 48 s in the guests of test/kernels
	o := newOwnOpener(t, "10.0.0.1:80/tcp endpoints=192.0.2.1:8080")
	list, results := copiesOfClients(0, many), make([]report.CopyResult, many)
	if err := o.d.PutCopies(t.Context(), list, results); err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r != report.CopyInserted {
			t.Fatalf("the copy of %s: %v", list[i].Client, r)
		}
	}
	found := map[netip.AddrPort]int{}
	err := o.d.ScanCopies(t.Context(), report.CopySelection{Copies: true}, func(part []report.ConnectionCopy) error {
		for i := range part {
			found[part[i].Client]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != many {
		t.Errorf("a scan finds %d of %d connections", len(found), many)
	}
}

// copiesOfClients returns copies of n connections of different clients, starting with client number
// first.
func copiesOfClients(first, n int) []report.ConnectionCopy {
	vip, endpoint := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("192.0.2.1:8080")
	list := make([]report.ConnectionCopy, n)
	for i := range list {
		number := first + i
		client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, byte(number >> 16), byte(number >> 8), byte(number)}), 40000)
		list[i] = report.ConnectionCopy{
			Protocol: lb.TCP, Client: client, VIP: vip, Source: client, Endpoint: endpoint,
			Flags: 6, Generation: 1, Numbers: report.TCPNumbers{Sent: 1, ReplySent: 2, ReplyAcked: 1, Acked: 2},
		}
	}
	return list
}
