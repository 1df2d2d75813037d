package connections

import (
	"fmt"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
)

// lifetimeNames are the protocols that are counted separately, by enum lifetime_class.
var lifetimeNames = map[uint32]string{
	uint32(bpf.TcLifetimeClassLIFETIME_TCP):  "tcp",
	uint32(bpf.TcLifetimeClassLIFETIME_UDP):  "udp",
	uint32(bpf.TcLifetimeClassLIFETIME_SCTP): "sctp",
	uint32(bpf.TcLifetimeClassLIFETIME_ICMP): "icmp",
}

// Lifetimes returns histograms of the durations and bytes of ended connections, for all protocols.
func (t *Table) Lifetimes() ([]report.Lifetimes, error) {
	list := make([]report.Lifetimes, len(lifetimeNames))
	for class, name := range lifetimeNames {
		var perCPU []bpf.TcLifetimeCounts
		if err := t.shared.Maps.Lifetimes.Lookup(class, &perCPU); err != nil {
			return nil, fmt.Errorf("read lifetimes of connections: %w", err)
		}
		one := &list[class]
		one.Protocol = name
		for i := range perCPU {
			addHistogram(&one.Life, &perCPU[i].Life)
			addHistogram(&one.In, &perCPU[i].BytesIn)
			addHistogram(&one.Out, &perCPU[i].BytesOut)
		}
	}
	return list, nil
}

func addHistogram(to *report.Histogram, h *bpf.TcHistogram) {
	to.Add(&report.Histogram{Sum: h.Sum, Buckets: h.Buckets})
}
