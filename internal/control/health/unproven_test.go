package health

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"loxilb/internal/control/health/probe"
)

// TestUnproven checks that a new target is probed every 100 ms at first, less often the longer it
// is down, and at its interval once it is up. Its state is unconfirmed until enough probes have
// failed.
func TestUnproven(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s script
		s.bad.Store(true)
		var changes notifications
		m := start(t, Config{Prober: scripted(s.probe).prober, Changed: changes.changed})
		begun := time.Now()
		m.Set("a", at(one, probeEverySecond(3, 2)))
		for n, unconfirmed := range []bool{true, true, false, false} {
			if st := s.next(t, m); st.State != Down || st.Unconfirmed != unconfirmed {
				t.Errorf("after %d failures: %+v", n+1, st)
			}
		}
		if took := time.Since(begun); took > time.Second/2 {
			t.Errorf("four probes took %s", took)
		}
		if n := changes.count(); n != 2 {
			t.Errorf("notified of %d changes, want down and confirmed", n)
		}
		time.Sleep(10*time.Second - time.Since(begun))
		if n := s.probes.Load(); n < 25 || n > 40 {
			t.Errorf("%d probes in ten seconds", n)
		}
		s.bad.Store(false)
		s.next(t, m)
		want(t, s.next(t, m), Up, "http 192.0.2.1:80: good, 2 of 2")
		before := s.probes.Load()
		time.Sleep(10 * time.Second)
		if n := s.probes.Load() - before; n < 9 || n > 11 {
			t.Errorf("%d probes in ten seconds of a target that is up", n)
		}
	})
}

// TestManyUnproven checks that many targets that were never up are not probed much more often than
// at their interval.
func TestManyUnproven(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s script
		s.bad.Store(true)
		m := start(t, Config{Prober: scripted(s.probe).prober})
		const targets = 1000
		for i := range targets {
			m.Set(fmt.Sprint(i), at(one, probeEverySecond(3, 2)))
		}
		time.Sleep(5 * time.Second)
		if n := s.probes.Load(); n > 7*targets {
			t.Errorf("%d probes of %d targets in 5 s", n, targets)
		}
	})
}

// TestUnprovenTimeout checks that a new target that does not answer has only one probe at a time.
func TestUnprovenTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var probes, running atomic.Int32
		silent := func(ctx context.Context, _ probe.Spec) (probe.Answer, error) {
			probes.Add(1)
			if running.Add(1) > 1 {
				t.Error("two probes run at once")
			}
			<-ctx.Done()
			running.Add(-1)
			return probe.Answer{}, errBad
		}
		m := start(t, Config{Prober: scripted(silent).prober})
		m.Set("a", at(one, probeEverySecond(3, 2)))
		time.Sleep(5 * time.Second)
		if n := probes.Load(); n < 5 || n > 6 {
			t.Errorf("%d probes in 5 s, each of 0.9 s", n)
		}
	})
}
