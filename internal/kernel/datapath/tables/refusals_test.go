package tables

import (
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// TestEachRefused checks that EachRefused yields exactly the services with refusals by their keys,
// each with the sum of all reasons.
func TestEachRefused(t *testing.T) {
	t.Parallel()
	d := load(t)
	apply(t, d, putChanges(0, 500, 1)...)
	read := func() map[lb.Key]uint64 {
		out := map[lb.Key]uint64{}
		if err := d.EachRefused(func(key lb.Key, packets uint64) { out[key] = packets }); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if got := read(); len(got) != 0 {
		t.Errorf("nothing was refused: %v", got)
	}
	s := d.services[serviceKey(499)]
	key := s.userKey()
	state := bpf.TcServiceState{Refused: [report.RefusalReasons]uint64{report.NoEndpoint: 2, report.ConnectionLimit: 3}}
	if err := d.maps.ServiceStates.Put(s.id, state); err != nil {
		t.Fatal(err)
	}
	if got := read(); len(got) != 1 || got[key] != 5 {
		t.Errorf("%v, want 5 of %v", got, key)
	}
}

// BenchmarkEachRefused reads 10,000 services, with and without refusals.
func BenchmarkEachRefused(b *testing.B) {
	d := load(b)
	apply(b, d, putChanges(0, 10_000, 1)...)
	for _, refusing := range []bool{false, true} {
		name := "idle"
		if refusing {
			name = "busy"
			state := bpf.TcServiceState{Refused: [report.RefusalReasons]uint64{report.NoEndpoint: 1}}
			for id := range uint32(10_000) {
				if err := d.maps.ServiceStates.Put(id, state); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := d.EachRefused(func(lb.Key, uint64) {}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
