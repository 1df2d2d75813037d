package datapath

import (
	"net/netip"
	"testing"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// BenchmarkPutCopies measures the insertion of a connection of another node, and the merge into one
// that is here.
func BenchmarkPutCopies(b *testing.B) {
	o := newOpener(b, "10.0.0.1:80/tcp endpoints=192.0.2.1:8080")
	const many = 20_000
	list, results := make([]report.ConnectionCopy, many), make([]report.CopyResult, many)
	for i := range list {
		client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), uint16(40000+i>>16))
		list[i] = report.ConnectionCopy{
			Protocol: lb.TCP, Client: client, VIP: netip.MustParseAddrPort("10.0.0.1:80"), Source: client, Endpoint: netip.MustParseAddrPort("192.0.2.1:8080"),
			Flags: 6, Generation: 1, Numbers: report.TCPNumbers{Sent: 1, ReplySent: 2, ReplyAcked: 1, Acked: 2},
		}
	}
	put := func() {
		if err := o.d.PutCopies(b.Context(), list, results); err != nil {
			b.Fatal(err)
		}
	}
	for name, generations := range map[string]bool{"insert": true, "merge": false} {
		b.Run(name, func(b *testing.B) {
			put()
			n := 0
			for b.Loop() {
				if generations { // each replaces the copy before: an end and an insertion
					b.StopTimer()
					for i := range list {
						list[i].Generation++
						list[i].Numbers.Sent += 1000
					}
					b.StartTimer()
				}
				put()
				n += many
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/copy")
		})
	}
}
