package reconcile

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/control/compile"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
)

// clockedSlowStart is a slowStart with the test's clock; its timers do not fire.
type clockedSlowStart struct {
	*slowStart
	t     *testing.T
	clock time.Time
	waits []time.Duration
	log   bytes.Buffer
	rows  map[netip.AddrPort]uint32
	s     lb.Service
}

func newClocked(t *testing.T, line string) *clockedSlowStart {
	t.Helper()
	c := &clockedSlowStart{t: t, clock: time.Now()}
	c.slowStart = newSlowStart(slog.New(slog.NewTextHandler(&c.log, nil)), nil)
	c.now = func() time.Time { return c.clock }
	c.schedule = func(_ lb.Key, d time.Duration) *time.Timer {
		c.waits = append(c.waits, d)
		return time.NewTimer(time.Hour)
	}
	c.parse(line)
	return c
}

func (c *clockedSlowStart) parse(line string) {
	c.t.Helper()
	s, err := lb.ParseService(line)
	if err == nil {
		err = s.Validate()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.s = s
}

// want checks the weights, in tenths; up has a 1 for each endpoint that is up.
func (c *clockedSlowStart) want(up string, weights ...uint32) {
	c.t.Helper()
	w := c.weights(&c.s, func(e lb.Endpoint) bool { return up[e.Addr.As4()[3]-1] == '1' }, func() map[netip.AddrPort]uint32 { return c.rows })
	table := compile.Weighted(c.s, w, 1, nil)
	c.rows = map[netip.AddrPort]uint32{}
	got := make([]uint32, len(weights))
	for i := range got {
		got[i] = table.Endpoints[i].CurrentWeight
		c.rows[c.s.Endpoints[i].AddrPort()] = got[i]
	}
	if diff := cmp.Diff(weights, got); diff != "" {
		c.t.Errorf("%s: -want +got:\n%s", up, diff)
	}
}

// TestSlowStart checks that a returning endpoint gets its full weight in nine steps within the
// service's slow start. A new service has full weights at once. A restart continues the ramp.
func TestSlowStart(t *testing.T) {
	const line = "20.20.20.1:80/tcp select=priority endpoints=10.0.0.1:80:2,10.0.0.2:80 slow-start=9s"
	c := newClocked(t, line)
	c.want("11", 20, 10)
	c.want("01", 0, 10)
	c.want("11", 2, 10)
	for n := range uint32(8) {
		if got := c.waits[len(c.waits)-1]; got != time.Second {
			t.Errorf("step %d follows after %v", n, got)
		}
		c.clock = c.clock.Add(time.Second)
		c.want("11", 4+2*n, 10)
	}
	c.clock = c.clock.Add(time.Second)
	c.want("11", 20, 10)
	if n := len(c.waits); n != 9 {
		t.Errorf("the service was applied %d times, want 9", n)
	}
	c.want("01", 0, 10)
	c.want("11", 2, 10)
	c.clock = c.clock.Add(4 * time.Second)
	c.want("11", 10, 10)
	c.slowStart.ramps = map[lb.Key]*ramp{} // like a new process
	c.want("11", 10, 10)
	c.clock = c.clock.Add(time.Second)
	c.want("11", 12, 10)
	c.parse(strings.Replace(line, ":80:2,", ":80:4,", 1))
	c.want("11", 24, 10)
	c.want("00", 0, 0)
	c.want("11", 4, 1)
	c.forget(c.s.Key)
	c.rows = nil
	c.want("11", 40, 10)
}

// TestSlowStartSlots checks that the current fraction applies in every algorithm except lc, whose
// rows have it, and that hash moves only as many slots as the weight changes.
func TestSlowStartSlots(t *testing.T) {
	for _, algorithm := range []string{"rr", "priority", "random", "hash", "persist"} {
		c := newClocked(t, "20.20.20.1:80/tcp slow-start=9s endpoints=10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 select="+algorithm)
		weights := func(up string) compile.Weights {
			return c.weights(&c.s, func(e lb.Endpoint) bool { return up[e.Addr.As4()[3]-1] == '1' }, func() map[netip.AddrPort]uint32 { return nil })
		}
		weights("111")
		down := compile.Weighted(c.s, weights("110"), 1, nil).Slots
		for _, tenths := range []int{1, 4} {
			slots := compile.Weighted(c.s, weights("111"), 1, nil).Slots
			own, moved := 0, 0
			for i, slot := range slots {
				if slot == 2 {
					own++
				} else if len(down) == len(slots) && down[i] != slot {
					moved++
				}
			}
			want := len(slots) * tenths / (20 + tenths)
			if own < want-1 || own > want+1 || moved > len(slots)/25 {
				t.Errorf("%s: of %d slots the endpoint has %d with %d tenths of its weight, want %d; %d others moved", algorithm, len(slots), own, tenths, want, moved)
			}
			c.clock = c.clock.Add(3 * time.Second)
		}
	}
}

// TestSlowBackups checks that backups continue while the endpoints that take over from them ramp
// up, and that their state is reported.
func TestSlowBackups(t *testing.T) {
	c := newClocked(t, "20.20.20.1:80/tcp select=priority endpoints=10.0.0.1:80,10.0.0.2:80,10.0.0.3:80@1 slow-start=9s")
	c.want("111", 10, 10, 0)
	c.want("011", 0, 10, 0)
	c.want("001", 0, 0, 1)
	c.clock = c.clock.Add(9 * time.Second)
	c.want("001", 0, 0, 10)
	c.want("101", 1, 0, 10)
	c.clock = c.clock.Add(5 * time.Second)
	c.want("111", 6, 1, 10)
	c.clock = c.clock.Add(4 * time.Second)
	c.want("111", 10, 5, 0)
	if n := strings.Count(c.log.String(), "level=WARN"); n != 1 || strings.Count(c.log.String(), "level=INFO") != 1 {
		t.Errorf("the log says:\n%s", c.log.String())
	}
	c.want("000", 0, 0, 0)
	c.want("001", 0, 0, 1)
}

// TestBackupsAtOnce checks that without a slow start backups stop at once, and that a service
// without slow start and backups is not tracked.
func TestBackupsAtOnce(t *testing.T) {
	c := newClocked(t, "20.20.20.1:80/tcp endpoints=10.0.0.1:80,10.0.0.3:80@1")
	c.want("101", 1, 0)
	c.want("001", 0, 1)
	c.want("101", 1, 0)
	c.parse("20.20.20.1:80/tcp endpoints=10.0.0.1:80,10.0.0.3:80")
	c.want("101", 1, 1)
	if len(c.ramps) > 0 || len(c.waits) > 0 {
		t.Errorf("ramps %v and timers %v remain", c.ramps, c.waits)
	}
}

// TestCombinations checks random changes at any pace: endpoints that are down, drained, of weight 0
// or unused backups get no connections, some endpoint gets connections whenever one can, and after
// a slow start all endpoints that get connections have their full weight.
func TestCombinations(t *testing.T) {
	const line = "20.20.20.1:80/tcp select=priority endpoints=10.0.0.1:80:2,10.0.0.2:80,10.0.0.3:80:3@1,10.0.0.4:80@2 failover-below=40 slow-start=9s"
	r := rand.New(rand.NewPCG(1, 2))
	c := newClocked(t, line)
	for range 5000 {
		c.parse(line)
		up := make([]bool, len(c.s.Endpoints))
		able := false
		for i := range up {
			up[i] = r.IntN(3) > 0
			if r.IntN(5) == 0 {
				c.s.Endpoints[i].Weight = 0 // by a user, or by a drain
			}
			able = able || up[i] && c.s.Endpoints[i].Weight > 0
		}
		if r.IntN(20) == 0 {
			c.ramps = map[lb.Key]*ramp{} // like a new process
		}
		apply := func() (table bpf.ServiceTable) {
			w := c.weights(&c.s, func(e lb.Endpoint) bool { return up[e.Addr.As4()[3]-1] }, func() map[netip.AddrPort]uint32 { return c.rows })
			table = compile.Weighted(c.s, w, 1, nil)
			c.rows = map[netip.AddrPort]uint32{}
			for i, e := range c.s.Endpoints {
				c.rows[e.AddrPort()] = table.Endpoints[i].CurrentWeight
			}
			return table
		}
		table := apply()
		if able != (len(table.Slots) > 0) {
			t.Fatalf("%v are up of %v, and the table is %v", up, c.s.Endpoints, table)
		}
		for i, e := range table.Endpoints {
			if e.CurrentWeight > 0 && (!up[i] || c.s.Endpoints[i].Weight == 0) {
				t.Fatalf("endpoint %d takes %d: %v are up of %v", i, e.CurrentWeight, up, c.s.Endpoints)
			}
		}
		c.clock = c.clock.Add(time.Duration(r.IntN(4)) * time.Second)
		if r.IntN(4) > 0 {
			continue
		}
		apply()
		c.clock = c.clock.Add(9 * time.Second)
		table = apply()
		weights := make([]uint32, len(up))
		for i, e := range c.s.Endpoints {
			if up[i] {
				weights[i] = uint32(e.Weight)
			}
		}
		compile.ClearBackups(&c.s, weights, c.s.ActiveLevel(weights))
		for i, e := range table.Endpoints {
			if e.CurrentWeight != weights[i]*compile.Tenths {
				t.Fatalf("endpoint %d takes %d after a while, want %d tenths: %v are up of %v", i, e.CurrentWeight, weights[i], up, c.s.Endpoints)
			}
		}
	}
}
