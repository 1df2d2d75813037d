package health

import (
	"net/netip"
	"testing"
	"time"

	"loxilb/internal/lb"
)

// TestTCP checks that a listening port is up, and a closed one is down, after one probe over each
// IP version.
func TestTCP(t *testing.T) {
	t.Parallel()
	for _, loopback := range []string{"127.0.0.1", "[::1]"} {
		t.Run(loopback, func(t *testing.T) {
			t.Parallel()
			m := start(t, Config{})
			p := lb.Probe{Type: lb.ProbeTCP, Interval: 100 * time.Millisecond, Fall: 2, Rise: 2}
			open := listen(t, loopback+":0")
			m.Set("open", at(open, p))
			closed := netip.AddrPortFrom(open.Addr(), 1)
			m.Set("closed", at(closed, p))
			s := waitState(t, m, "open", Up)
			if want := "tcp " + open.String() + ": accepts connections, 1 of 1"; s.History[0].Evidence != want {
				t.Errorf("evidence %q, want %q", s.History[0].Evidence, want)
			}
			if s.MinDelay <= 0 || s.MinDelay > s.AvgDelay || s.AvgDelay > s.MaxDelay || s.MaxDelay > time.Second {
				t.Errorf("delays %v %v %v", s.MinDelay, s.AvgDelay, s.MaxDelay)
			}
			s = waitState(t, m, "closed", Down)
			if want := "tcp " + closed.String() + ": connection refused, 1 of 1"; s.History[0].Evidence != want {
				t.Errorf("evidence %q, want %q", s.History[0].Evidence, want)
			}
		})
	}
}

// TestMonotonic checks that probes are scheduled by the monotonic clock.
func TestMonotonic(t *testing.T) {
	t.Parallel()
	m := start(t, Config{})
	p := lb.Probe{Type: lb.ProbeTCP, Interval: 100 * time.Millisecond}
	open := listen(t, "127.0.0.1:0")
	m.Set("a", at(open, p))
	for range 3 {
		s := waitState(t, m, "a", Up)
		m.mu.Lock()
		phase := m.targets["a"].phase
		m.mu.Unlock()
		for _, when := range []time.Time{phase, s.Checked} {
			if when.String() == when.Round(0).String() { // Round(0) strips the monotonic reading
				t.Errorf("%v has no monotonic clock", when)
			}
		}
		p.Interval += 100 * time.Millisecond
		m.Set("a", at(open, p))
	}
}
