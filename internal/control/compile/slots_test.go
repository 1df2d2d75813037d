package compile

import (
	"net/netip"

	"loxilb/internal/lb"

	"math/rand/v2"
	"testing"
)

// TestWeightsExact checks that in every window of one round each endpoint occurs as often as its
// weight, wherever the window begins.
func TestWeightsExact(t *testing.T) {
	for _, weights := range [][]uint32{{5, 3, 2}, {1, 1, 1}, {0, 7}, {100, 1}, {6, 4, 2}, {1, 0, 2, 0, 3}, {65535, 1}} {
		table := slots(weights)
		sum, d := uint32(0), uint32(0)
		for _, w := range weights {
			sum, d = sum+w, gcd(d, w)
		}
		if uint32(len(table)) != sum/d {
			t.Errorf("%v: %d slots, want %d", weights, len(table), sum/d)
		}
		for start := 0; start < len(table); start += max(1, len(table)/7) {
			have := make([]uint32, len(weights))
			for i := range table {
				have[table[(start+i)%len(table)]]++
			}
			for i, w := range weights {
				if have[i] != w/d {
					t.Errorf("%v from slot %d: endpoint %d comes %d times, want %d", weights, start, i, have[i], w/d)
				}
			}
		}
	}
}

// TestSmooth checks that no endpoint waits much longer than its average distance, or comes in
// bursts.
func TestSmooth(t *testing.T) {
	weights := []uint32{5, 3, 2}
	last, longest := -1, 0
	table := slots(weights)
	for i := range 2 * len(table) {
		if table[i%len(table)] == 0 {
			if last >= 0 {
				longest = max(longest, i-last)
			}
			last = i
		}
	}
	if longest > 3 {
		t.Errorf("%v: endpoint 0 is away for %d slots, of every 2", table, longest)
	}
}

// TestScale checks that weights too large for the table keep their share to within one slot each,
// and that none is lost.
func TestScale(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		weights := make([]uint32, 1+rng.IntN(4096))
		var sum float64
		for i := range weights {
			weights[i] = uint32(rng.IntN(65536))
			sum += float64(weights[i])
		}
		scaled, total := scale(weights)
		if total > maxSlots {
			t.Fatalf("%d slots", total)
		}
		var have int
		for i, p := range scaled {
			have += int(p)
			share := float64(weights[i]) * float64(total) / sum
			if (weights[i] > 0) != (p > 0) || float64(p) > share+1.01 || (p > 1 && float64(p) < share-1.01) {
				t.Fatalf("weight %d of %v: %d slots, share %.2f", weights[i], sum, p, share)
			}
		}
		if have != total {
			t.Fatalf("the slots sum to %d, not %d", have, total)
		}
	}
}

func BenchmarkSlots(b *testing.B) {
	weights := make([]uint32, 4096)
	for i := range weights {
		weights[i] = uint32(i)
	}
	for b.Loop() {
		slots(weights)
	}
}

// TestHashTablesFit checks that the tables of the maximum number of services, with three endpoints
// each, use less than 140 MB.
func TestHashTablesFit(t *testing.T) {
	t.Parallel()
	const sample = 64
	slotCount := 0
	for i := range sample {
		slotCount += len(Service(hashService(i), nil, 1, nil).Slots)
	}
	if bytes := 4 * slotCount / sample * lb.MaxServices; bytes > 140<<20 {
		t.Errorf("%d services take %d MB", lb.MaxServices, bytes>>20)
	}
}

// BenchmarkHashTables compiles the tables of the maximum number of services one after the other.
func BenchmarkHashTables(b *testing.B) {
	for b.Loop() {
		for i := range lb.MaxServices {
			Service(hashService(i), nil, 1, nil)
		}
	}
}

func hashService(i int) lb.Service {
	s := lb.Service{Algorithm: lb.Hash, Endpoints: make([]lb.Endpoint, 3)}
	for j := range s.Endpoints {
		s.Endpoints[j] = lb.Endpoint{Addr: netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(j)}), Port: 80, Weight: 1}
	}
	return s
}
