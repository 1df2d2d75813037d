package health

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"loxilb/internal/control/health/probe"
	"loxilb/internal/lb"
	"loxilb/test/race"
)

var (
	one = netip.MustParseAddrPort("192.0.2.1:80")
	two = netip.MustParseAddrPort("[2001:db8::2]:80")
)

// probeEverySecond returns a probe with an interval of one second.
func probeEverySecond(fall, rise int) lb.Probe {
	return lb.Probe{Type: lb.ProbeHTTP, Interval: time.Second, Timeout: 900 * time.Millisecond, Fall: fall, Rise: rise}
}

// script answers probes as the test requests.
type script struct {
	bad    atomic.Bool  // probes fail
	probes atomic.Int32 // number of probes
	waited bool         // next was called before
}

func (s *script) probe(context.Context, probe.Spec) (probe.Answer, error) {
	s.probes.Add(1)
	if s.bad.Load() {
		return probe.Answer{}, errBad
	}
	return probe.Answer{What: "good", Delay: time.Millisecond}, nil
}

// next waits for the next probe of target a, and returns the status after it. The first call waits
// for the first probe, which may have ended already.
func (s *script) next(t *testing.T, m *Monitor) Status {
	t.Helper()
	n := s.probes.Load()
	if !s.waited {
		n, s.waited = 0, true
	}
	for s.probes.Load() == n {
		time.Sleep(tick)
	}
	synctest.Wait()
	st, ok := m.Status("a")
	if !ok {
		t.Fatal("the target is not known")
	}
	return st
}

// want compares a status with the expected state and evidence.
func want(t *testing.T, s Status, state State, evidence string) {
	t.Helper()
	if s.State != state || s.Evidence != evidence {
		t.Errorf("%v (%s), want %v (%s)", s.State, s.Evidence, state, evidence)
	}
}

// TestFallRise checks that one result determines the first state, and that each later change of the
// state needs fall consecutive failures or rise consecutive successes.
func TestFallRise(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s script
		var changes notifications
		m := start(t, Config{Prober: scripted(s.probe).prober, Changed: changes.changed})
		m.Set("a", at(one, probeEverySecond(3, 2)))
		known, _ := m.Status("a")
		want(t, known, Unknown, "http 192.0.2.1:80: not probed yet")
		for i, step := range []struct {
			bad      bool
			state    State
			evidence string
		}{
			{false, Up, "good, 1 of 1"},
			{true, Up, "bad, 1 of 3"}, {true, Up, "bad, 2 of 3"}, {false, Up, "good, 1 of 2"},
			{true, Up, "bad, 1 of 3"}, {true, Up, "bad, 2 of 3"}, {true, Down, "bad, 3 of 3"}, {true, Down, "bad, 3 of 3"},
			{false, Down, "good, 1 of 2"}, {true, Down, "bad, 1 of 3"},
			{false, Down, "good, 1 of 2"}, {false, Up, "good, 2 of 2"}, {false, Up, "good, 2 of 2"},
		} {
			s.bad.Store(step.bad)
			st := s.next(t, m)
			if t.Failed() {
				t.Fatal("at step", i)
			}
			want(t, st, step.state, "http 192.0.2.1:80: "+step.evidence)
		}
		st, _ := m.Status("a")
		if len(st.History) != 3 || st.History[1].Evidence != "http 192.0.2.1:80: bad, 3 of 3" || st.History[1].To != Down || st.Since != st.History[2].At {
			t.Errorf("history %+v since %v", st.History, st.Since)
		}
		if n := changes.count(); n != 3 {
			t.Errorf("notified of %d changes, want 3", n)
		}
		if st.Successes != 3 || st.Failures != 0 || time.Since(st.Checked) > time.Second {
			t.Errorf("got %+v, want st.Successes == 3, st.Failures == 0, st.Checked within a second", st)
		}
	})
}

// TestFirstDown checks that one failure is enough for the first state.
func TestFirstDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s script
		s.bad.Store(true)
		m := start(t, Config{Prober: scripted(s.probe).prober})
		m.Set("a", at(two, probeEverySecond(100, 100)))
		want(t, s.next(t, m), Down, "http [2001:db8::2]:80: bad, 1 of 1")
		if st, _ := m.Status("a"); st.Since != st.History[0].At {
			t.Errorf("got %+v, want st.Since == st.History[0].At", st)
		}
	})
}

// TestDowntime checks how often a target was down, and the total time, including the current
// downtime.
func TestDowntime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s script
		m := start(t, Config{Prober: scripted(s.probe).prober})
		m.Set("a", at(one, probeEverySecond(1, 1)))
		var last Status
		for _, bad := range []bool{false, true, true, false, false, true} {
			s.bad.Store(bad)
			last = s.next(t, m)
		}
		first := last.History[2].At.Sub(last.History[1].At)
		if last.Downs != 2 || last.WasDown != first || first <= 0 {
			t.Errorf("%d times down, %v before; want 2 and %v", last.Downs, last.WasDown, first)
		}
		if got, want := last.Downtime(last.Since.Add(time.Second)), first+time.Second; got != want {
			t.Errorf("downtime %v, want %v", got, want)
		}
		s.bad.Store(false)
		up := s.next(t, m)
		if got := up.Downtime(up.Since.Add(time.Hour)); up.Downs != 2 || got != up.WasDown || got <= first {
			t.Errorf("after its recovery, the endpoint was down %d times, for %v", up.Downs, got)
		}
	})
}

// TestHistoryLength checks that a status has the last changes, the oldest first.
func TestHistoryLength(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s script
		m := start(t, Config{Prober: scripted(s.probe).prober})
		m.Set("a", at(one, probeEverySecond(1, 1)))
		for i := range 50 {
			s.bad.Store(i%2 == 1)
			s.next(t, m)
		}
		st, _ := m.Status("a")
		if len(st.History) != historyLength || !st.History[0].At.Before(st.History[1].At) || st.History[historyLength-1].To != Down {
			t.Errorf("%d changes: %+v", len(st.History), st.History)
		}
		for i, c := range st.History {
			if c.From == c.To || i > 0 && c.From != st.History[i-1].To {
				t.Errorf("change %d: %+v", i, c)
			}
		}
	})
}

// TestOverride checks that an agent's report is in effect until the agent withdraws it. Probes
// continue meanwhile, and their state is in effect afterwards.
func TestOverride(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s script
		m := start(t, Config{Prober: scripted(s.probe).prober})
		m.Override("a", Down, "lost") // unknown target
		m.Set("a", at(one, probeEverySecond(1, 1)))
		want(t, s.next(t, m), Up, "http 192.0.2.1:80: good, 1 of 1")
		m.Override("a", Down, "agent x: disk full")
		want(t, s.next(t, m), Down, "agent x: disk full")
		m.Set("a", at(two, probeEverySecond(1, 1))) // another target that the agent has reported on
		want(t, s.next(t, m), Down, "agent x: disk full")
		m.Override("a", Unknown, "")
		st, _ := m.Status("a")
		want(t, st, Up, "http [2001:db8::2]:80: good, 1 of 1")
		if last := st.History[len(st.History)-1]; last.From != Down || last.To != Up || last.Evidence != st.Evidence {
			t.Errorf("history %+v", st.History)
		}
		m.Override("a", Up, "agent x: all is well")
		s.bad.Store(true)
		want(t, s.next(t, m), Up, "agent x: all is well")
		m.Override("a", Unknown, "")
		st, _ = m.Status("a")
		want(t, st, Down, "http [2001:db8::2]:80: bad, 1 of 1")
	})
}

// TestEject checks that an ejection makes a target down whatever its probes report, that ProbeState
// still has the probes' state, and that an agent's report takes precedence over both.
func TestEject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s script
		m := start(t, Config{Prober: scripted(s.probe).prober})
		m.Eject("a", "lost") // unknown target
		m.Set("a", at(one, probeEverySecond(1, 1)))
		want(t, s.next(t, m), Up, "http 192.0.2.1:80: good, 1 of 1")
		m.Eject("a", "passive: 3 SYNs")
		st := s.next(t, m)
		want(t, st, Down, "passive: 3 SYNs")
		if st.ProbeState != Up || len(st.History) != 2 {
			t.Errorf("got %+v, want st.ProbeState == Up, 2 elements in st.History", st)
		}
		m.Eject("a", "passive: 4 SYNs") // no change
		if st = s.next(t, m); st.Evidence != "passive: 4 SYNs" || len(st.History) != 2 {
			t.Errorf(`got %+v, want st.Evidence == "passive: 4 SYNs", 2 elements in st.History`, st)
		}
		m.Set("a", at(two, probeEverySecond(1, 1)))
		want(t, s.next(t, m), Down, "passive: 4 SYNs")
		m.Override("a", Up, "agent x: all is well")
		want(t, s.next(t, m), Up, "agent x: all is well")
		m.Override("a", Unknown, "")
		m.Eject("a", "")
		st, _ = m.Status("a")
		want(t, st, Up, "http [2001:db8::2]:80: good, 1 of 1")
		m.Set("silent", Target{Addr: one.Addr(), Probe: lb.Probe{Type: lb.ProbeNone}})
		m.Eject("silent", "passive: 3 SYNs")
		st, _ = m.Status("silent")
		want(t, st, Down, "passive: 3 SYNs")
		m.Eject("silent", "")
		st, _ = m.Status("silent")
		want(t, st, Up, "192.0.2.1: not probed; clients' handshakes succeed again")
	})
}

// TestEjectedAndDown checks that State and ProbeState of a target that is ejected, and whose probes
// fail later, have different times.
func TestEjectedAndDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s script
		var changes notifications
		m := start(t, Config{Prober: scripted(s.probe).prober, Changed: changes.changed})
		m.Set("a", at(one, probeEverySecond(2, 1)))
		s.next(t, m)
		m.Eject("a", "passive: 3 SYNs")
		s.next(t, m)
		s.bad.Store(true)
		before, start := changes.count(), time.Now()
		s.next(t, m)
		if st := s.next(t, m); st.ProbeState != Down || st.State != Down || !st.ProbeSince.After(start) || st.Since.After(start) {
			t.Errorf("got %+v, want it down since before, and by its probe since %v", st, start)
		}
		if n := changes.count() - before; n != 1 {
			t.Errorf("notified %d times", n)
		}
		m.Override("a", Down, "agent x: red") // the same state from another agent
		if synctest.Wait(); changes.count()-before != 1 {
			t.Error("not notified of a change")
		}
	})
}

// TestInPlace checks that a target whose probe changes keeps its state and history, but not its
// counts, and that a target with another address or type of probe keeps nothing.
func TestInPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s script
		var changes notifications
		m := start(t, Config{Prober: scripted(s.probe).prober, Changed: changes.changed})
		m.Set("a", at(one, probeEverySecond(2, 2)))
		s.next(t, m)
		s.bad.Store(true)
		s.next(t, m)
		p := probeEverySecond(2, 2)
		p.Request = "/other"
		m.Set("a", at(one, p))
		st := s.next(t, m)
		want(t, st, Up, "http 192.0.2.1:80: bad, 1 of 2")
		if len(st.History) != 1 {
			t.Errorf("history %+v", st.History)
		}
		p.Fall = 10
		m.Set("a", at(one, p))
		want(t, s.next(t, m), Up, "http 192.0.2.1:80: bad, 2 of 10")
		before := changes.count()
		m.Set("a", at(two, p))
		st, _ = m.Status("a")
		want(t, st, Unknown, "http [2001:db8::2]:80: not probed yet")
		if synctest.Wait(); len(st.History) != 0 || changes.count() != before+1 {
			t.Errorf("history %+v, notified of %d changes", st.History, changes.count()-before)
		}
		want(t, s.next(t, m), Down, "http [2001:db8::2]:80: bad, 1 of 1")
		m.Set("a", at(two, lb.Probe{Type: lb.ProbeNone}))
		st, _ = m.Status("a")
		want(t, st, Up, "2001:db8::2: not probed, so assumed to be up")
		n := s.probes.Load()
		time.Sleep(time.Minute)
		if s.probes.Load() != n {
			t.Error("the endpoint is probed although its probe is off")
		}
		m.Set("a", at(two, probeEverySecond(1, 1)))
		want(t, s.next(t, m), Down, "http [2001:db8::2]:80: bad, 1 of 1")
	})
}

// TestSooner checks that a shorter interval takes effect immediately.
func TestSooner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s script
		m := start(t, Config{Prober: scripted(s.probe).prober})
		p := probeEverySecond(3, 2)
		p.Interval = 24 * time.Hour
		m.Set("a", at(one, p))
		s.next(t, m)
		p.Interval = time.Second
		m.Set("a", at(one, p))
		time.Sleep(10500 * time.Millisecond)
		if n := s.probes.Load(); n < 11 || n > 12 {
			t.Errorf("%d probes in 10 seconds", n)
		}
	})
}

// TestOldResult checks that the result of a probe is ignored after its target was replaced or
// removed, and that the probe is canceled.
func TestOldResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int32
		hangs := func(ctx context.Context, spec probe.Spec) (probe.Answer, error) {
			if spec.Probe.Request == "/hangs" {
				<-ctx.Done()
				time.Sleep(time.Second) // slow to stop, too
				ended.Add(1)
				return probe.Answer{}, errBad
			}
			return probe.Answer{What: "good"}, nil
		}
		m := start(t, Config{Prober: scripted(hangs).prober})
		p := probeEverySecond(1, 1)
		p.Interval, p.Timeout = time.Hour, time.Hour
		slow := p
		slow.Request = "/hangs"
		m.Set("a", at(one, slow))
		m.Set("gone", at(one, slow))
		time.Sleep(time.Minute)
		m.Remove("gone")
		m.Set("a", at(one, p))
		time.Sleep(time.Minute)
		if ended.Load() != 2 {
			t.Errorf("%d probes were ended, want 2", ended.Load())
		}
		st, _ := m.Status("a")
		want(t, st, Up, "http 192.0.2.1:80: good, 1 of 1")
		if _, ok := m.Status("gone"); ok {
			t.Error("a removed target has a status")
		}
	})
}

// TestSlow checks that targets that never answer do not delay the probes of another one.
func TestSlow(t *testing.T) {
	t.Parallel()
	race.Skip(t)
	synctest.Test(t, func(t *testing.T) {
		var probes atomic.Int32
		m := start(t, Config{Prober: scripted(func(ctx context.Context, spec probe.Spec) (probe.Answer, error) {
			if spec.To == two {
				<-ctx.Done()
				return probe.Answer{}, ctx.Err()
			}
			probes.Add(1)
			return probe.Answer{What: "good"}, nil
		}).prober})
		p := probeEverySecond(3, 2)
		p.Timeout = time.Second
		for i := range 1000 {
			m.Set(fmt.Sprint(i), at(two, p))
		}
		m.Set("a", at(one, p))
		time.Sleep(61 * time.Second)
		if n := probes.Load(); n < 60 || n > 62 {
			t.Errorf("%d probes in a minute", n)
		}
	})
}

// TestUndecided checks that an inconclusive probe counts neither as a failure nor as a success, and
// does not interrupt a series of failures.
func TestUndecided(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s script
		var open atomic.Bool
		m := start(t, Config{Prober: scripted(func(ctx context.Context, spec probe.Spec) (probe.Answer, error) {
			a, err := s.probe(ctx, spec)
			if open.Load() {
				return probe.Answer{}, fmt.Errorf("silence %w", probe.ErrUndecided)
			}
			return a, err
		}).prober})
		m.Set("a", at(one, probeEverySecond(2, 1)))
		want(t, s.next(t, m), Up, "http 192.0.2.1:80: good, 1 of 1")
		s.bad.Store(true)
		want(t, s.next(t, m), Up, "http 192.0.2.1:80: bad, 1 of 2")
		for range 5 {
			open.Store(true)
			st := s.next(t, m)
			want(t, st, Up, "http 192.0.2.1:80: silence is inconclusive")
			if !st.Undecided {
				t.Errorf("got %+v, want it undecided", st)
			}
		}
		open.Store(false)
		want(t, s.next(t, m), Down, "http 192.0.2.1:80: bad, 2 of 2")
		open.Store(true)
		want(t, s.next(t, m), Down, "http 192.0.2.1:80: silence is inconclusive")
	})
}

// TestEvidence checks that text from endpoints is truncated, and its unprintable characters
// replaced.
func TestEvidence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := start(t, Config{Prober: scripted(func(_ context.Context, spec probe.Spec) (probe.Answer, error) {
			if spec.To == one {
				return probe.Answer{}, errors.New("\x1b[2Jgone\n\xff" + strings.Repeat("é", 1000))
			}
			return probe.Answer{What: "good\x00"}, nil
		}).prober})
		m.Set("a", at(one, probeEverySecond(1, 1)))
		m.Set("b", at(two, probeEverySecond(1, 1)))
		time.Sleep(time.Second)
		st, _ := m.Status("a")
		want(t, st, Down, "http 192.0.2.1:80: ?[2Jgone??"+strings.Repeat("é", maxResult-10)+"..., 1 of 1")
		st, _ = m.Status("b")
		want(t, st, Up, "http [2001:db8::2]:80: good?, 1 of 1")
	})
}

// TestSpread checks that targets that are set together get their first probe within a second, and
// that their later probes are spread over the interval.
func TestSpread(t *testing.T) {
	t.Parallel()
	for interval, targets := range map[time.Duration]int32{200 * time.Millisecond: 300, 2 * time.Second: 2000, time.Minute: 2000} {
		t.Run(interval.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var count atomic.Int32
				m := start(t, Config{Prober: scripted(func(context.Context, probe.Spec) (probe.Answer, error) {
					count.Add(1)
					return probe.Answer{}, nil
				}).prober})
				p := probeEverySecond(3, 2)
				p.Interval, p.Timeout = interval, interval
				for i := range targets {
					m.Set(fmt.Sprint(i), at(one, p))
				}
				time.Sleep(2 * tick)
				if n := count.Load(); n < atOnce || n > targets/4 {
					t.Errorf("%d of %d targets are probed at once, want %d or some more", n, targets, atOnce)
				}
				first := min(interval, time.Second)
				time.Sleep(first)
				if n := count.Load(); n < targets {
					t.Errorf("%d of %d targets are probed within %v", n, targets, first)
				}
				time.Sleep(interval)
				for range 5 {
					before := count.Load()
					for part := range 10 {
						n := count.Load()
						time.Sleep(interval / 10)
						if n = count.Load() - n; n < targets/30 || n > targets/4 { // random: of 300, 9 or fewer come once in 200,000 runs
							t.Errorf("%d of %d probes in the %d. tenth of an interval", n, targets, part+1)
						}
					}
					if n := count.Load() - before; n < targets-targets/10 || n > targets+targets/10 {
						t.Errorf("%d probes in an interval, want %d", n, targets)
					}
				}
			})
		})
	}
}
