package connections

import (
	"context"
	"sync"
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/conntrack"
	"loxilb/internal/kernel/datapath/loader"
)

// TestFillWhileGrowing checks that entries that are written while the table grows are all there,
// once.
func TestFillWhileGrowing(t *testing.T) {
	t.Parallel()
	const step, steps = 20_000, 5
	d := open(t, loader.Settings{Connections: 2 * step * steps})
	d.stopGrowth()
	for n := range steps {
		var entries []conntrack.Entry
		for i := range uint32(step) {
			client := bpf.TcIpAddr{Word: [4]uint32{0, 0, 0xffff0000, uint32(n)<<24 | i}}
			entries = append(entries, conntrack.Entry{Key: bpf.TcConnectionKey{Saddr: client, Sport: 0x80, Protocol: 6}})
		}
		var growth sync.WaitGroup
		growth.Go(func() {
			if err := d.grow(t.Context(), uint64(2*step*(n+1))); err != nil {
				t.Error(err)
			}
		})
		err := d.Fill(entries)
		growth.Wait()
		if err != nil {
			t.Fatalf("step %d: %v", n, err)
		}
		seen := map[bpf.TcConnectionKey]int{}
		err = d.shared.Conntrack.Each(context.Background(), func(k bpf.TcConnectionKey, _ bpf.TcConnection) bool {
			seen[k]++
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		for k, times := range seen {
			if times != 1 {
				t.Fatalf("step %d: %v is there %d times", n, k, times)
			}
		}
		if len(seen) != step*(n+1) {
			t.Fatalf("step %d: %d entries, want %d", n, len(seen), step*(n+1))
		}
	}
}
