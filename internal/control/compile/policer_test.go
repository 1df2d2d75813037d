package compile

import (
	"math/big"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/policy"
)

// TestPolicerCost checks that the cost of a byte or packet is rounded to the nearest number of
// ticks. Rounding down would let a fast rate exceed its configured value.
func TestPolicerCost(t *testing.T) {
	t.Parallel()
	for _, r := range []policy.Rate{
		{PerSecond: 8}, {PerSecond: 10_007}, {PerSecond: 1_000_000_007}, {PerSecond: 9_999_999_967},
		{PerSecond: 400_000_000_000}, {PerSecond: 3, Packets: true}, {PerSecond: 999_983, Packets: true},
		{PerSecond: 148_809_523, Packets: true},
	} {
		second := new(big.Int).Lsh(big.NewInt(1e9), tickShift+costShift)
		if !r.Packets {
			second.Mul(second, big.NewInt(8))
		}
		perSecond := new(big.Int).SetUint64(r.PerSecond)
		off := new(big.Int).Mul(new(big.Int).SetUint64(cost(r)), perSecond)
		off.Sub(off, second).Abs(off).Lsh(off, 1)
		if off.Cmp(perSecond) > 0 {
			t.Errorf("%v: cost %d is not the nearest", r, cost(r))
		}
	}
}

// TestPolicerRow checks that bursts are in ticks of the rate that fills their bucket.
func TestPolicerRow(t *testing.T) {
	t.Parallel()
	const mega = 8_000_000 // bits per second: a byte takes a microsecond
	second := uint64(1e9) << tickShift
	row := func(flags bpf.TcPolicerFlag) bpf.TcPolicer {
		return bpf.TcPolicer{Flags: uint64(flags), Cost: 1000 << (tickShift + costShift)}
	}
	one, two := row(bpf.TcPolicerFlagPOLICER_ONE_RATE|bpf.TcPolicerFlagPOLICER_COLOR_AWARE), row(0)
	one.Burst, one.ExcessBurst = second, 2*second
	two.Burst, two.PeakCost, two.ExcessBurst = second, two.Cost/2, second
	packets := row(bpf.TcPolicerFlagPOLICER_ONE_RATE | bpf.TcPolicerFlagPOLICER_PACKETS)
	packets.Burst, packets.ExcessBurst = second, second/2
	for name, c := range map[string]struct {
		policer policy.Policer
		want    bpf.TcPolicer
	}{
		"one rate": {policy.Policer{
			OneRate: true, ColorAware: true, Committed: policy.Rate{PerSecond: mega},
			CommittedBurst: 1e6, ExcessBurst: 2e6,
		}, one},
		"two rates": {policy.Policer{
			Committed: policy.Rate{PerSecond: mega}, Peak: policy.Rate{PerSecond: 2 * mega},
			CommittedBurst: 1e6, ExcessBurst: 2e6,
		}, two},
		"packets": {policy.Policer{
			OneRate: true, Committed: policy.Rate{PerSecond: 1e6, Packets: true},
			CommittedBurst: 1e6, ExcessBurst: 5e5,
		}, packets},
	} {
		if diff := cmp.Diff(c.want, Policer(&c.policer)); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}
