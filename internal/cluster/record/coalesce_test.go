package record

import (
	"math/rand/v2"
	"slices"
	"testing"

	"loxilb/internal/lb/report"
)

// TestCoalesce checks that a peer that merges what remains of a list of copies knows the same as
// one that merges all, also if a client's port has a later connection.
func TestCoalesce(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 10))
	for range 200 {
		var lives [4][]report.ConnectionCopy
		for i := range lives {
			lives[i] = life(r, sample(r))
		}
		later := lives[0][0] // the next connection of a client's port
		later.Generation++
		later.Idle = 0
		lives[3] = life(r, later)
		var list []report.ConnectionCopy
		for left := true; left; { // interleaved, each life in its order
			left = false
			for i := range lives {
				n := r.IntN(len(lives[i]) + 1)
				list, lives[i] = append(list, lives[i][:n]...), lives[i][n:]
				left = left || len(lives[i]) > 0
			}
		}
		want := table(list)
		got := Coalesce(slices.Clone(list))
		if len(got) >= len(list) {
			t.Fatalf("%d of %d copies remain", len(got), len(list))
		}
		for key, c := range table(got) {
			if c != want[key] {
				t.Fatalf("got %+v, want\n%+v", c, want[key])
			}
		}
		if len(table(got)) != len(want) {
			t.Fatalf("%d connections remain of %d", len(table(got)), len(want))
		}
	}
}

// table merges copies like a peer.
func table(list []report.ConnectionCopy) map[tuple]report.ConnectionCopy {
	out := map[tuple]report.ConnectionCopy{}
	for _, c := range list {
		key := tuple{c.Client, c.VIP, c.Protocol}
		if old, ok := out[key]; ok {
			c = Merge(old, c)
		}
		out[key] = c
	}
	return out
}

// BenchmarkCoalesce measures the cost per copy of a batch in which each connection has two.
func BenchmarkCoalesce(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	const many = 500
	var all []report.ConnectionCopy
	for range many / 2 {
		c := sample(r)
		all = append(all, c, c)
	}
	list := make([]report.ConnectionCopy, many)
	for b.Loop() {
		copy(list, all)
		Coalesce(list)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/many, "ns/copy")
}
