package outlier

import (
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/lb/report"
)

// TestManyFail checks that a client that has all of very many endpoints reset its connections costs
// no more than reading their counters.
func TestManyFail(t *testing.T) {
	t.Parallel()
	const endpoints = 10000
	d := New(jiffy)
	d.Watch([]Service{{Key: web, Resets: true}})
	rows := make([]report.HandshakeRow, endpoints)
	for i := range rows {
		rows[i] = report.HandshakeRow{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80), ID: uint32(i)}
	}
	now := time.Unix(1000, 0)
	d.Observe(web, rows)
	for i := range rows {
		rows[i].Count.Opened, rows[i].Count.Answered[0] = 10, 10
		rows[i].Count.Reset = 5 + uint64(i*7919%5)
	}
	d.Observe(web, rows)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := threadTime(t)
	for range 10 {
		now = now.Add(ReadInterval)
		if a := d.Decide(now); len(a) > 0 {
			t.Fatalf("got %v, want no a", a[0])
		}
	}
	if took := threadTime(t) - start; took > 10*ReadInterval {
		t.Errorf("ten decisions take %s of CPU", took)
	}
	d.Observe(web, slices.Clone(rows)[1:]) // the service's list of endpoints has changed
	if took := threadTime(t) - start; took > 11*ReadInterval {
		t.Errorf("another list takes %s of CPU", took)
	}
}

// threadTime returns the CPU time of this thread, as other tests use the CPUs, too.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}

// TestMedian checks that endpoints that are out, and get no connections, do not count in the median
// of the others.
func TestMedian(t *testing.T) {
	t.Parallel()
	r := newRig(t, 8)
	for i := range 3 {
		r.rows[i].Count.Opened, r.rows[i].Count.Refused = 3, 3
	}
	r.tick()
	for i := range 3 {
		r.answer(i, "connection refused")
	}
	for range countHalfLife / ReadInterval {
		r.tick()
	}
	for i := range 3 {
		delete(r.checks, at(i))
	}
	r.decisions = nil
	for i := 3; i < 8; i++ {
		r.serve(i, 10)
	}
	r.rows[3].Count.Reset, r.rows[4].Count.Reset = 6, 4
	r.tick()
	r.want("out 3 6 of 10 client connections reset before an answer")
}

// TestIdle checks that endpoints of weight 0 and drained ones do not count among those of which
// half may be out, whether they are out or not.
func TestIdle(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	fail := func(i int) {
		r.rows[i].Count.Opened, r.rows[i].Count.Refused = r.rows[i].Count.Opened+3, r.rows[i].Count.Refused+3
		r.tick()
		r.answer(i, "refused")
	}
	r.rows[2].Idle, r.rows[3].Idle = true, true
	r.tick()
	fail(0)
	if len(r.decisions) != 1 {
		t.Errorf("got %q, want 1 element", r.decisions)
	}
	fail(1)
	if len(r.decisions) != 2 || !strings.HasPrefix(r.decisions[1], "kept 1 ") {
		t.Errorf("both are out: %q", r.decisions)
	}
	r.rows[0].Idle, r.rows[2].Idle = true, false
	r.tick()
	if len(r.decisions) != 3 {
		t.Errorf("only an endpoint of weight 0 may be out, not %q", r.decisions)
	}
}

// TestOutElsewhere checks that an endpoint that is out for another service counts as out in a
// service that adds it.
func TestOutElsewhere(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	r.rows[0].Count.Opened, r.rows[0].Count.Refused = 3, 3
	r.tick()
	r.answer(0, "refused")
	other := web
	other.Port = 443
	r.d.Watch([]Service{{Key: web, Resets: true}, {Key: other, Resets: true}})
	rows := []report.HandshakeRow{{Addr: at(0), ID: 10}, {Addr: at(9), ID: 11}}
	r.d.Observe(other, rows)
	rows = slices.Clone(rows)
	rows[1].Count.Opened, rows[1].Count.Refused = 3, 3
	r.d.Observe(other, rows)
	r.decisions = nil
	r.tick()
	r.answer(9, "refused")
	r.want("kept 9 3 client SYNs refused or undeliverable in 0.2 s; loxilb's own check: refused; kept in rotation: too few others are left")
}

// TestBackupsRelieve checks that all endpoints of a failed level leave while its backups are up,
// and at most half of all endpoints if no backup is.
func TestBackupsRelieve(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		levels []uint8
		dead   []int
		off    []int // down by probes
		out    int
	}{
		{"two and a backup", []uint8{0, 0, 1}, []int{0, 1}, nil, 2},
		{"one of two is down for probes", []uint8{0, 0, 0, 0, 1}, []int{0, 1, 2}, []int{3}, 3},
		{"one of two lives", []uint8{0, 0, 0, 0, 1}, []int{0, 1, 2}, nil, 2},
		{"backups of backups", []uint8{0, 0, 1, 2}, []int{0, 1, 2}, nil, 3},
		{"the last ones stay", []uint8{0, 0, 1}, []int{0, 1, 2}, nil, 2},
		{"without backups", []uint8{0, 0, 0}, []int{0, 1, 2}, nil, 1},
	} {
		r := newRig(t, len(c.levels))
		levels := map[netip.AddrPort]uint8{}
		for i, level := range c.levels {
			levels[at(i)] = level
		}
		if c.levels[len(c.levels)-1] > 0 {
			r.d.Watch([]Service{{Key: web, Levels: levels}})
		}
		for _, i := range c.off {
			r.rows[i].Inactive = true
		}
		for range 40 {
			for _, i := range c.dead {
				if first := c.levels[i] == 0; first || len(r.outEndpoints()) >= 2 {
					r.rows[i].Count.Opened++
				}
				if _, ok := r.checks[at(i)]; ok {
					r.answer(i, "no answer")
				}
			}
			r.tick()
		}
		if out := r.outEndpoints(); len(out) != c.out {
			t.Errorf("%s: %v are out, want %d", c.name, out, c.out)
		}
	}
}

// TestHeldUntilRelieved checks that a convicted endpoint that had to stay leaves at once when the
// last of its level is convicted, and stays if it has answered since.
func TestHeldUntilRelieved(t *testing.T) {
	t.Parallel()
	for _, well := range []bool{false, true} {
		r := newRig(t, 4)
		r.d.Watch([]Service{{Key: web, Levels: map[netip.AddrPort]uint8{at(3): 1}}})
		convict := func(i int) {
			r.rows[i].Count.Opened += 3
			for r.checks[at(i)] == (Action{}) {
				r.tick()
			}
			r.answer(i, "no answer")
		}
		convict(1)
		convict(2)
		convict(0)
		if n := len(r.outEndpoints()); n != 3 {
			t.Fatalf("%d are out", n)
		}
		r.take([]Action{r.d.targets[at(1)].readmit(r.now), r.d.targets[at(2)].readmit(r.now)})
		r.serve(1, 1)
		r.serve(2, 1)
		r.rows[3].Idle = true // no backup for a while
		r.tick()
		convict(1) // exceeds half of three
		if n := len(r.outEndpoints()); n != 1 {
			t.Fatalf("%d are out without backups", n)
		}
		convict(2)
		if well {
			r.serve(1, 1)
		}
		r.rows[3].Idle = false
		r.tick()
		if want := map[bool]int{false: 3, true: 2}[well]; len(r.outEndpoints()) != want {
			t.Errorf("%v are out, want %d", r.outEndpoints(), want)
		}
	}
}

// TestAnotherServes checks that failing endpoints leave however many there are while another one
// serves clients, and no more than half while the others fail as well, or have no clients.
func TestAnotherServes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		dead, well int // of ten endpoints; the others have no clients
		out        int
	}{
		{"all but one", 9, 1, 9},
		{"all", 10, 0, 5},
		{"all that have clients", 9, 0, 5},
		{"within the quota", 3, 7, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 10)
			for i := range r.rows {
				r.serve(i, 1)
			}
			r.tick()
			begun := r.now
			for r.now.Sub(begun) < 5*time.Second {
				for i := range c.dead {
					r.rows[i].Count.Opened++
					if _, checked := r.checks[at(i)]; checked {
						r.answer(i, "no answer")
					}
				}
				for i := range c.well {
					r.serve(9-i, 1)
				}
				r.tick()
			}
			out := 0
			for i := range r.rows {
				if t := r.d.targets[at(i)]; t != nil && t.out {
					out++
				}
			}
			if out != c.out {
				t.Errorf("%d endpoints are out, want %d: %q", out, c.out, r.decisions)
			}
		})
	}
}

// outEndpoints returns the endpoints that are out.
func (r *rig) outEndpoints() (list []netip.AddrPort) {
	for at, t := range r.d.targets {
		if t.out {
			list = append(list, at)
		}
	}
	return list
}
