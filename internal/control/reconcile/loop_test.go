package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"loxilb/internal/control/status"
	"loxilb/internal/event"
)

// fakeWorker fails objects as long as the test sets an error for them.
type fakeWorker struct {
	mu     sync.Mutex
	broken map[int]error
	tried  map[int][]time.Time
	passes [][]int
}

func (s *fakeWorker) Apply(_ context.Context, keys []int) []Outcome[int] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passes = append(s.passes, slices.Clone(keys))
	var out []Outcome[int]
	for _, k := range keys {
		s.tried[k] = append(s.tried[k], time.Now())
		out = append(out, Outcome[int]{Key: k, Version: 1, Err: s.broken[k]})
	}
	return out
}

// tries returns the times at which an object was tried.
func (s *fakeWorker) tries(k int) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tried[k])
}

func (s *fakeWorker) fix(k int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.broken, k)
}

func newFakeWorker() *fakeWorker {
	return &fakeWorker{broken: map[int]error{}, tried: map[int][]time.Time{}}
}

func quiet() Observers {
	return Observers{Statuses: status.NewTable(), Events: event.NewHub(), Log: slog.New(slog.DiscardHandler)}
}

// TestLoopRetries checks that a failed object is retried at growing intervals, and delays no other.
func TestLoopRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, o := newFakeWorker(), quiet()
		w.broken[13] = errors.New("it is broken")
		l := newLoop("number", strconv.Itoa, w, o)
		events := o.Events.Subscribe()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.Run(ctx)
		l.Mark(12, 13, 14)
		synctest.Wait()
		for _, k := range []string{"12", "14"} {
			if s, _ := o.Statuses.Get(status.ID{Kind: "number", Key: k}); s.State() != status.Applied {
				t.Errorf("%s is %s", k, s.State())
			}
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := len(w.tries(12)) + len(w.tries(14)); n != 2 {
			t.Errorf("an applied object was tried again: %d times", n)
		}
		tries := w.tries(13)
		if n := len(tries); n < 10*60/45 || n > 10*60/15+20 {
			t.Errorf("%d tries in ten minutes", n)
		}
		for i := range tries[1:] {
			if gap := tries[i+1].Sub(tries[i]); gap < firstRetry/2 || gap > lastRetry*3/2 {
				t.Errorf("a retry after %s", gap)
			}
		}
		s, _ := o.Statuses.Get(status.ID{Kind: "number", Key: "13"})
		if s.State() != status.Failed || s.Attempts != len(tries) || !s.Next.After(time.Now()) {
			t.Errorf("%+v after %d tries", s, len(tries))
		}
		w.fix(13)
		time.Sleep(2 * lastRetry)
		synctest.Wait()
		if s, _ := o.Statuses.Get(status.ID{Kind: "number", Key: "13"}); s.State() != status.Applied {
			t.Errorf("got %+v, want state status.Applied", s)
		}
		var notified []string
		for e, _, ok := events.Poll(); ok; e, _, ok = events.Poll() {
			notified = append(notified, e.String())
		}
		want := []string{"number 12 applied", "number 13 failed: it is broken", "number 14 applied", "number 13 applied"}
		if !slices.Equal(notified, want) {
			t.Errorf("got %q, want %q", notified, want)
		}
	})
}

// TestLoopTriesChangesAtOnce checks that a change of a failing object is tried at once, and that a
// change of another object does not wait for the failing object's retry.
func TestLoopTriesChangesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeWorker()
		w.broken[13] = errors.New("it is broken")
		l := newLoop("number", strconv.Itoa, w, quiet())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.Run(ctx)
		l.Mark(13)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		before := len(w.tries(13))
		l.Mark(1)
		synctest.Wait()
		if len(w.tries(1)) != 1 || len(w.tries(13)) != before {
			t.Errorf("%d and %d tries after %d", len(w.tries(1)), len(w.tries(13)), before)
		}
		l.Mark(13)
		synctest.Wait()
		if len(w.tries(13)) != before+1 {
			t.Errorf("a changed object was tried %d times, %d of them before the change", len(w.tries(13)), before)
		}
	})
}

// TestLoopBatches checks that the size of passes is bounded, that due objects are processed in the
// order of their arrival, and that Idle reports the end of the first round.
func TestLoopBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeWorker()
		l := newLoop("number", strconv.Itoa, w, quiet())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for k := range 3*batchSize + 1 {
			l.Mark(k, k)
		}
		go l.Run(ctx)
		<-l.Idle()
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.passes) != 4 || len(w.tried) != 3*batchSize+1 || w.passes[1][0] != batchSize {
			t.Errorf("%d passes of %d objects", len(w.passes), len(w.tried))
		}
		for k, tries := range w.tried {
			if len(tries) != 1 {
				t.Errorf("%d was tried %d times", k, len(tries))
			}
		}
	})
}

// endlessWorker marks another object in each pass.
type endlessWorker struct{ loop *Loop[int] }

func (r *endlessWorker) Apply(_ context.Context, keys []int) (out []Outcome[int]) {
	time.Sleep(time.Millisecond)
	for _, k := range keys {
		r.loop.Mark(k + 1)
		out = append(out, Outcome[int]{Key: k, Version: 1})
	}
	return out
}

// TestLoopIdle checks that Idle is closed when everything due at the start was tried, although
// changes continue.
func TestLoopIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &endlessWorker{}
		w.loop = newLoop("number", strconv.Itoa, w, quiet())
		w.loop.Mark(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		done := make(chan struct{})
		go func() { w.loop.Run(ctx); close(done) }()
		select {
		case <-w.loop.Idle():
		case <-ctx.Done():
			t.Error("the loop never becomes idle")
		}
		cancel()
		<-done
	})
}

// TestLoopFeed checks that changes are fed at the start and whenever the watched channel is closed,
// and that none is lost in between.
func TestLoopFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeWorker()
		l := newLoop("number", strconv.Itoa, w, quiet())
		var mu sync.Mutex
		changed, next, fed := make(chan struct{}), 0, -1
		l.watch = func() <-chan struct{} { mu.Lock(); defer mu.Unlock(); return changed }
		l.feed = func(context.Context) {
			mu.Lock()
			defer mu.Unlock()
			if fed != next {
				fed = next
				l.Mark(next)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.Run(ctx)
		synctest.Wait()
		mu.Lock()
		close(changed)
		changed, next = make(chan struct{}), 1
		mu.Unlock()
		synctest.Wait()
		if len(w.tries(0)) == 0 || len(w.tries(1)) == 0 {
			t.Errorf("%d and %d tries", len(w.tries(0)), len(w.tries(1)))
		}
	})
}

// TestLoopRest checks that a loop that is marked constantly uses no more than its share of the
// time, and that no change waits longer than longestRest.
func TestLoopRest(t *testing.T) {
	t.Run("quick", func(t *testing.T) { testLoopRest(t, 50*time.Millisecond, 200) })
	t.Run("slow", func(t *testing.T) { testLoopRest(t, 3*time.Second, 42) })
}

// testLoopRest runs a task that takes a given time for 210 s, and checks the number of passes.
func testLoopRest(t *testing.T, takes time.Duration, want int32) {
	synctest.Test(t, func(t *testing.T) {
		var passes atomic.Int32
		slow := workerFunc(func(context.Context) error { passes.Add(1); time.Sleep(takes); return nil })
		l := newLoop("task", func(s string) string { return s }, slow, quiet())
		l.rest = 20
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.Run(ctx)
		for range 2100 {
			l.Mark("slow")
			time.Sleep(100 * time.Millisecond)
		}
		cancel()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := passes.Load(); n < want-2 || n > want+2 {
			t.Errorf("%d passes in 210 s, want %d", n, want)
		}
	})
}

// TestLoopFirst checks that objects that a caller waits for are processed before others, and once.
func TestLoopFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeWorker()
		l := newLoop("number", strconv.Itoa, w, quiet())
		for k := range 3 * batchSize {
			l.Mark(k)
		}
		l.MarkFirst(2*batchSize+7, -1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.Run(ctx)
		<-l.Idle()
		w.mu.Lock()
		defer w.mu.Unlock()
		if first := w.passes[0]; first[0] != 2*batchSize+7 || first[1] != -1 || first[2] != 0 {
			t.Errorf("the first pass took %v", first[:3])
		}
		for k, tries := range w.tried {
			if len(tries) != 1 {
				t.Errorf("%d was tried %d times", k, len(tries))
			}
		}
		if len(w.tried) != 3*batchSize+1 {
			t.Errorf("%d were tried", len(w.tried))
		}
	})
}
