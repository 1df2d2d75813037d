package connections

import (
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/test/dptest"
	"loxilb/test/dptest/programs"
)

// TestSweepOrphan checks that an entry without its other direction is removed after its timeout,
// and decrements a count only if it is the client's.
func TestSweepOrphan(t *testing.T) {
	t.Parallel()
	d := open(t, loader.Settings{Connections: 100})
	now := dptest.Jiffies(t)
	for _, c := range []struct {
		name   string
		keep   func(flags uint8) bool
		age    uint32 // seconds
		left   int
		active uint64
	}{
		{"client's, young", func(f uint8) bool { return f&1 == 0 }, 100, 10, 10},
		{"client's, old", func(f uint8) bool { return f&1 == 0 }, 8000, 0, 0},
		{"reply's, young", func(f uint8) bool { return f&1 == 1 }, 100, 10, 10},
		{"reply's, old", func(f uint8) bool { return f&1 == 1 }, 8000, 0, 10},
	} {
		dptest.Fill(t, d.shared, 10, now-c.age*d.shared.Jiffies(time.Second))
		for key, row := range dptest.Connections(t, d.shared) {
			if c.keep(row.Flags) {
				continue
			}
			if err := d.shared.Conntrack.Remove(key); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.shared.EndpointStates.Put(uint32(0), bpf.TcEndpointState{Connections: 10, Active: 10, Tracked: 10}); err != nil {
			t.Fatal(err)
		}
		if err := d.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		var state bpf.TcEndpointState
		if err := d.shared.EndpointStates.Lookup(uint32(0), &state); err != nil {
			t.Fatal(err)
		}
		if left := len(dptest.Connections(t, d.shared)); left != c.left || state.Tracked != c.active {
			t.Errorf("%s: %d entries left, %d active; want %d and %d", c.name, left, state.Tracked, c.left, c.active)
		}
	}
}

// TestSweepUnderPressure checks that a pass through a table that is more than half full treats all
// closed connections alike, including those that it reaches after it has made room.
func TestSweepUnderPressure(t *testing.T) {
	t.Parallel()
	const most, closed = 8000, 4400 // 55 percent
	d := open(t, loader.Settings{Connections: most, HalfOpen: 25})
	for _, c := range []struct {
		silent time.Duration
		ended  uint64
	}{{2 * time.Second, 0}, {6 * time.Second, closed}} { // two seconds are added to the timeout
		dptest.Fill(t, d.shared, closed, dptest.Jiffies(t)-d.shared.Jiffies(c.silent))
		err := dptest.ChangeConnections(d.shared.Conntrack, func(_ bpf.TcConnectionKey, row *bpf.TcConnection) bool {
			row.Flags |= uint8(bpf.TcConnectionFlagCONN_RESET)
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		before := d.Swept().Ended
		if err := d.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := d.Swept().Ended - before; got != c.ended {
			t.Errorf("silent for %v: %d connections of %d ended; want %d", c.silent, got, closed, c.ended)
		}
	}
}

// TestSweepPass checks that a sweep keeps the pressure of its beginning until it has finished, and
// no longer: connections that close later would be removed early.
func TestSweepPass(t *testing.T) {
	t.Parallel()
	const most, connections = 8000, 4400
	d := open(t, loader.Settings{Connections: most, HalfOpen: 25})
	dptest.Fill(t, d.shared, connections, dptest.Jiffies(t))
	want := func(step string, want int64) {
		t.Helper()
		var state bpf.TcTableState
		if err := d.shared.Maps.TableStates.Lookup(uint32(0), &state); err != nil {
			t.Fatal(err)
		}
		if state.EntriesSwept != want {
			t.Errorf("%s: the sweep uses the pressure of %d entries, want %d", step, state.EntriesSwept, want)
		}
	}
	want("before", 0)
	next, err := d.runMarked(sweepRows, 0)
	if err != nil || next == 0 {
		t.Fatalf("got %v %v, want no error, next != 0", next, err)
	}
	want("after a slice", 2*connections)
	if err := d.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("at its end", 0)
}

// TestSweepUnderTraffic checks that expired flows open again while sweeps pass over them, at the
// latest with the second packet, if the sweep is removing the flow when the first one arrives. The
// counts of active connections stay equal to the table.
func TestSweepUnderTraffic(t *testing.T) {
	t.Parallel()
	const flows = 2000
	d := open(t, loader.Settings{Connections: 2 * flows})
	vip := netip.MustParseAddr("10.0.0.1")
	var endpoints []netip.Addr
	for i := range byte(7) {
		endpoints = append(endpoints, netip.AddrFrom4([4]byte{10, 1, 0, i}))
	}
	d.serve(t, 17, netip.AddrPortFrom(vip, 53), endpoints...)
	send := func() {
		for i := range uint16(flows) {
			frame := dptest.UDPFrame(netip.MustParseAddr("10.8.0.1"), vip, 1000+i, 53)
			if _, err := d.program(t).Run(&ebpf.RunOptions{Data: frame}); err != nil {
				t.Error(err)
			}
		}
	}
	send()
	for range 5 {
		if err := programs.New(d.shared, nil).Age(time.Hour); err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		swept := make(chan error)
		go func() {
			for {
				err := d.Sweep(t.Context())
				select {
				case <-stop:
					swept <- err
					return
				default:
				}
			}
		}()
		send()
		close(stop)
		if err := <-swept; err != nil {
			t.Fatal(err)
		}
		send()
		have := map[uint32]uint64{}
		all := dptest.Connections(t, d.shared)
		for _, row := range all {
			if row.Flags&1 == 0 {
				have[row.Endpoint]++
			}
		}
		if len(all) != 2*flows {
			t.Errorf("%d entries for %d flows", len(all), flows)
		}
		for id := range uint32(len(endpoints)) {
			var state bpf.TcEndpointState
			if err := d.shared.EndpointStates.Lookup(id, &state); err != nil {
				t.Fatal(err)
			}
			if state.Tracked != have[id] {
				t.Errorf("endpoint %d: %d active, %d in the table", id, state.Tracked, have[id])
			}
		}
	}
}
