package health

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"loxilb/internal/control/health/probe"
)

// TestShortage checks that the number of simultaneous probes is limited, and that the other probes
// are delayed, but not omitted. The shortage is logged once, and its end once.
func TestShortage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var running, most, count atomic.Int32
		var quick atomic.Bool
		var out output
		m := start(t, Config{Descriptors: 10, Log: slog.New(slog.NewTextHandler(&out, nil)), Prober: scripted(
			func(ctx context.Context, _ probe.Spec) (probe.Answer, error) {
				n := running.Add(1)
				defer running.Add(-1)
				most.Store(max(most.Load(), n))
				if count.Add(1); !quick.Load() {
					<-ctx.Done()
				}
				return probe.Answer{}, errBad
			}).prober})
		for i := range 100 {
			m.Set(fmt.Sprint(i), at(one, probeEverySecond(3, 2)))
		}
		time.Sleep(12 * time.Second)
		if most.Load() != 10 {
			t.Errorf("%d probes ran at a time, want 10", most.Load())
		}
		for i := range 100 {
			if st, _ := m.Status(fmt.Sprint(i)); st.State != Down {
				t.Errorf("target %d is %v: it was not probed", i, st.State)
			}
		}
		quick.Store(true)
		time.Sleep(2 * shortageEnd)
		if n := strings.Count(out.String(), "\n"); n != 2 || !strings.Contains(out.String(), "probes are no longer delayed") {
			t.Errorf("%d lines, want 2:\n%s", n, &out)
		}
	})
}

// TestNoDescriptor checks that a probe without a descriptor does not affect the state of its
// target, and is retried.
func TestNoDescriptor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var short atomic.Bool
		var out output
		m := start(t, Config{Log: slog.New(slog.NewTextHandler(&out, nil)), Prober: scripted(
			func(context.Context, probe.Spec) (probe.Answer, error) {
				if short.Load() {
					return probe.Answer{}, fmt.Errorf("%w: %w", probe.ErrNotSent, syscall.EMFILE)
				}
				return probe.Answer{What: "good"}, nil
			}).prober})
		p := probeEverySecond(1, 1)
		p.Interval = time.Hour
		short.Store(true)
		m.Set("a", at(one, p))
		time.Sleep(10 * time.Second)
		st, _ := m.Status("a")
		want(t, st, Unknown, "http 192.0.2.1:80: cannot be probed: too many open files")
		short.Store(false)
		time.Sleep(2 * retryDelay)
		st, _ = m.Status("a")
		want(t, st, Up, "http 192.0.2.1:80: good, 1 of 1")
		time.Sleep(2 * shortageEnd)
		if n := strings.Count(out.String(), "\n"); n != 2 {
			t.Errorf("%d lines, want 2:\n%s", n, &out)
		}
	})
}
