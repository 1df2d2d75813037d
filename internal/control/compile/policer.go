package compile

import (
	"math/bits"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/policy"
)

const (
	tickShift = uint(bpf.TcPolicerLayoutTICK_SHIFT)
	costShift = uint(bpf.TcPolicerLayoutCOST_SHIFT)
)

// Policer returns the row of a policer, which has the time per byte or packet instead of rates.
func Policer(p *policy.Policer) bpf.TcPolicer {
	committed, excess := p.Bursts()
	row := bpf.TcPolicer{Cost: cost(p.Committed)}
	row.Burst = ticks(committed, row.Cost)
	if p.OneRate {
		row.Flags |= uint64(bpf.TcPolicerFlagPOLICER_ONE_RATE)
		row.ExcessBurst = ticks(excess, row.Cost)
	} else {
		row.PeakCost = cost(p.Peak)
		row.ExcessBurst = ticks(excess, row.PeakCost)
	}
	if p.ColorAware {
		row.Flags |= uint64(bpf.TcPolicerFlagPOLICER_COLOR_AWARE)
	}
	if p.Committed.Packets {
		row.Flags |= uint64(bpf.TcPolicerFlagPOLICER_PACKETS)
	}
	return row
}

// cost returns the time per byte or packet at a rate.
func cost(r policy.Rate) uint64 {
	second := uint64(1e9) << (tickShift + costShift)
	if !r.Packets {
		second *= 8 // of a byte
	}
	return (second + r.PerSecond/2) / r.PerSecond
}

// ticks returns the time that units bytes or packets take, each of this cost.
func ticks(units, cost uint64) uint64 {
	high, low := bits.Mul64(units, cost)
	return high<<(64-costShift) | low>>costShift
}
