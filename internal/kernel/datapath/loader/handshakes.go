package loader

import (
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// Handshakes are the counts of handshakes with endpoints, by id: each CPU has a row for the steps
// of ordinary handshakes, and all CPUs share a row for others.
type Handshakes struct{ Shared, PerCPU *rows.Array }

// Clear zeroes the counts of an endpoint.
func (h Handshakes) Clear(id uint32, cpus int) error {
	if err := h.PerCPU.Put(id, make([]bpf.TcHandshakeProgress, cpus)); err != nil {
		return err
	}
	return h.Shared.Put(id, bpf.TcHandshakeCounts{})
}

// SumSteps adds the counts of all CPUs.
func SumSteps(perCPU []bpf.TcHandshakeProgress) (sum bpf.TcHandshakeProgress) {
	for i := range perCPU {
		sum.Opened += perCPU[i].Opened
		sum.Completed += perCPU[i].Completed
		for bucket, n := range perCPU[i].Answered {
			sum.Answered[bucket] += n
		}
	}
	return sum
}
