package connections

import (
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest/programs"
)

// TestLifetimesOfMoved checks that connections whose rows move while the table grows keep their
// start times, and that each is counted once.
func TestLifetimesOfMoved(t *testing.T) {
	t.Parallel()
	const flows, half, life = 60_000, 10_000, 20 * time.Second
	d := open(t, loader.Settings{Connections: flows})
	d.stopGrowth()
	send := d.newFlows(t)
	sendAll := func(n int) {
		t.Helper()
		for i := range n {
			if err := send(i); err != nil {
				t.Fatal(err)
			}
		}
	}
	sendAll(half)
	if err := programs.New(d.shared, nil).Age(life); err != nil {
		t.Fatal(err)
	}
	before, err := d.shared.Conntrack.Buckets()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.grow(t.Context(), 2*flows); err != nil {
		t.Fatal(err)
	}
	sendAll(half) // the last packet of each connection
	after, err := d.shared.Conntrack.Buckets()
	if err != nil || after <= before {
		t.Fatalf("%d buckets, %d before, %v", after, before, err)
	}
	if err := programs.New(d.shared, nil).Age(time.Hour); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	list, err := d.Lifetimes()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range list {
		want := uint64(0)
		if one.Protocol == "udp" {
			want = half
		}
		if n := one.Life.Count(); n != want || one.In.Count() != want || one.Out.Count() != want {
			t.Errorf("%s: %d lifetimes, and %d and %d sums of bytes; want %d of each", one.Protocol, n, one.In.Count(), one.Out.Count(), want)
		}
		if one.Out.Buckets[0] != want || one.Out.Sum != 0 {
			t.Errorf("%s: the endpoint has sent %d bytes", one.Protocol, one.Out.Sum)
		}
		// longer by the duration of the test, which is seconds on a busy machine
		if mean := float64(one.Life.Sum) * report.LifeUnit / float64(max(want, 1)); want > 0 && (mean < life.Seconds()-0.1 || mean > 3*life.Seconds()) {
			t.Errorf("a connection lived %.1f s, want %v", mean, life)
		}
	}
}
