package connections

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/test/dptest"
)

// TestGrow grows the table from its first size while flows open, and while packets of open flows
// arrive on another CPU. No flow is ever missing: it would be opened, and counted, again. Lists
// during the growth are complete.
func TestGrow(t *testing.T) {
	t.Parallel()
	const flows = 60_000
	d := open(t, loader.Settings{Connections: flows})
	first, err := d.shared.Conntrack.Buckets()
	if err != nil {
		t.Fatal(err)
	}
	send := d.newFlows(t)
	var opened atomic.Int64
	var others sync.WaitGroup
	done := make(chan struct{})
	others.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			if n := int(opened.Load()); n > 0 {
				if err := send(i * 7919 % n); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	others.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			err := d.shared.Conntrack.Each(t.Context(), func(bpf.TcConnectionKey, bpf.TcConnection) bool { return true })
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range flows {
		if err := send(i); err != nil {
			t.Fatal(err)
		}
		opened.Store(int64(i))
	}
	close(done)
	others.Wait()
	// Clients whose packets met a full table try again.
	if err := d.grow(t.Context(), 2*flows); err != nil {
		t.Fatal(err)
	}
	sendFlows(t, send, flows)
	buckets, err := d.shared.Conntrack.Buckets()
	if err != nil {
		t.Fatal(err)
	}
	if buckets < 2*first {
		t.Errorf("%d buckets, of %d in the beginning", buckets, first)
	}
	var state bpf.TcEndpointState
	if err := d.shared.EndpointStates.Lookup(uint32(0), &state); err != nil {
		t.Fatal(err)
	}
	entries, err := d.shared.Conntrack.Len()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(dptest.Connections(t, d.shared)); state.Connections != flows || n != 2*flows || entries != 2*flows {
		t.Errorf("%d flows were opened %d times; %d entries, counted as %d; %d packets dropped by races, %d by a full table",
			flows, state.Connections, n, entries,
			dropped(t, d.shared, bpf.TcDropReasonDROP_CONNECTION_RACE), dropped(t, d.shared, bpf.TcDropReasonDROP_CONNTRACK_FULL))
	}
}

// TestGrowInPart checks that a table grows as far as there is memory, unless that is too little to
// move all entries for it, and later further.
func TestGrowInPart(t *testing.T) {
	t.Parallel()
	const entries = 100_000
	d := open(t, loader.Settings{Connections: entries})
	d.stopGrowth()
	goal, _, err := d.shared.Conntrack.GroupsFor(entries)
	if err != nil {
		t.Fatal(err)
	}
	first, err := d.shared.Conntrack.Groups()
	if err != nil {
		t.Fatal(err)
	}
	most := int(goal)
	for _, tc := range []struct{ memory, want int }{
		{0, first}, {first + first/20, first}, {first + first/10, first + first/10}, {first + first/10, first + first/10}, {most, most},
	} {
		d.shared.Conntrack.LimitMemory(tc.memory)
		fails := tc.want < most
		if err := d.grow(t.Context(), entries); errors.Is(err, unix.ENOMEM) != fails || !fails && err != nil {
			t.Errorf("growth with memory for %d of %d groups: %v", tc.memory, goal, err)
		}
		if used, err := d.shared.Conntrack.Groups(); err != nil || used != tc.want {
			t.Errorf("with memory for %d of %d groups, %d are in use (%v), want %d", tc.memory, goal, used, err, tc.want)
		}
	}
}

// TestExpectedGrowth checks for how many entries a check makes room.
func TestExpectedGrowth(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, now  uint64
		since, ahead time.Duration
		want         uint64
	}{
		"none arrived":                   {5000, 5000, time.Second, time.Second, 0},
		"some ended":                     {5000, 4000, time.Second, time.Second, 0},
		"a second ahead":                 {5000, 6000, 100 * time.Millisecond, time.Second, 10_000},
		"two, as growing is slow":        {5000, 6000, 100 * time.Millisecond, 2 * time.Second, 20_000},
		"a burst in a small table":       {0, 10_000, 10 * time.Millisecond, time.Second, spareEntries},
		"a burst in a table of millions": {7_900_000, 8_000_000, 10 * time.Millisecond, time.Second, 1_000_000},
	} {
		if got := expectedGrowth(c.before, c.now, c.since, c.ahead); got != c.want {
			t.Errorf("%s: room for %d entries, want %d", name, got, c.want)
		}
	}
}
