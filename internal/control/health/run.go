package health

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"loxilb/internal/control/health/probe"
	"loxilb/internal/lb"
)

const (
	// tick is the least time between two rounds. A round starts all probes that are due by
	// then: waking up costs more than a probe.
	tick = 10 * time.Millisecond
	// With more than busyDaily probes per day (2,000 per second), rounds are busyTick apart.
	// Two hundred consecutive probes use the CPU's caches well; with fifty, each costs a third
	// more.
	busyTick  = 50 * time.Millisecond
	busyDaily = 2000 * 86400
	// probeTime is the time per probe in a round. It limits the probes of a round, so probes
	// that are due at the same time, as after a pause of the process, do not all start at once.
	probeTime = 20 * time.Microsecond
	// stallTime is how long after its timeout a probe may end. The failure of a later one is no
	// evidence: this process was suspended, and has not read the answer.
	stallTime = time.Second
	// retryDelay is the delay until a probe without a file descriptor is retried.
	retryDelay = time.Second
)

// run is a running probe.
type run struct {
	cancel func()
	begun  time.Time
}

// runner runs a Monitor: it starts and collects probes in rounds.
type runner struct {
	*Monitor
	ctx       context.Context
	connector *probe.Connector
	probes    sync.WaitGroup
}

// Run probes until ctx ends. It returns after all goroutines that it has started.
func (m *Monitor) Run(ctx context.Context) {
	r := runner{Monitor: m, ctx: ctx}
	var notifier sync.WaitGroup
	notifier.Go(func() { m.notifyChanges(ctx) })
	defer notifier.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		connector, err := probe.NewConnector()
		if err == nil {
			r.connector = connector
			break
		}
		m.mu.Lock()
		m.shortage.record(time.Now())
		m.mu.Unlock()
		if !sleep(ctx, timer, retryDelay, nil) {
			return
		}
	}
	defer r.stop()
	for sleep(ctx, timer, r.roundInterval(), nil) {
		if idle := r.idle(); idle > 0 && !sleep(ctx, timer, idle, m.wake) {
			return
		}
		r.connector.Collect()
		r.startDue()
		r.connector.Collect() // nearby endpoints have answered already
	}
}

// roundInterval returns the least time until the next round.
func (r *runner) roundInterval() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.daily > busyDaily {
		return busyTick
	}
	return tick
}

// sleep waits for d, or until wake is signaled. It returns false if ctx has ended.
func sleep(ctx context.Context, timer *time.Timer, d time.Duration, wake <-chan struct{}) bool {
	timer.Reset(d)
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-wake:
	}
	return ctx.Err() == nil
}

// stop cancels all probes.
func (r *runner) stop() {
	r.mu.Lock()
	for _, t := range r.targets {
		if t.run != nil {
			t.run.cancel()
			t.run = nil
		}
	}
	r.mu.Unlock()
	r.probes.Wait()
	r.connector.Close()
	r.sockets.Close()
}

// idle returns the time until there is something to do.
func (r *runner) idle() time.Duration {
	if r.connector.Running() > 0 {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	idle := time.Hour
	if r.shortage.isReported() {
		idle = time.Second
	}
	if at, ok := r.queue.Next(); ok {
		idle = min(idle, time.Until(at))
	}
	return idle
}

// startDue starts the probes that are due, in the order of their times, and as many as one round
// allows.
func (r *runner) startDue() {
	now := time.Now()
	for n := r.roundInterval() / probeTime; n > 0 && r.startNext(now); n-- {
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shortage.check(now)
}

// startNext starts the next probe. It returns false if none is due, or none can be started.
func (r *runner) startNext(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.queue.Next(); !ok || at.After(now) {
		return false
	}
	if r.running >= r.limit {
		r.shortage.record(now)
		return false
	}
	if r.running+r.connector.Idle() >= r.limit {
		r.connector.DropIdle() // another probe may need the descriptor
	}
	t, _ := r.queue.Pop(now)
	if t.run != nil { // the previous probe has timed out, and is about to end
		r.queue.Push(t, now.Add(tick))
		return true
	}
	// The second probe of a target is due at a random time within the first interval, and later
	// probes at multiples of the interval after it. So the probes of targets that were set
	// together are spread over the interval.
	interval := t.Probe.Interval
	if t.unprobed {
		t.unprobed = false
		r.unprobed--
		t.phase = now.Add(rand.N(interval) + 1)
	} else {
		t.phase = t.phase.Add(interval * (1 + now.Sub(t.phase)/interval))
	}
	r.queue.Push(t, t.phase)
	r.start(t)
	return true
}

// start starts a probe. The caller holds mu.
func (r *runner) start(t *target) {
	r.running++
	current := &run{begun: time.Now()}
	t.run = current
	if t.prober == nil {
		attempt, err := r.connector.Start(r.spec(t.Target), func(a probe.Answer, err error) { r.end(t, current, a, err) })
		if err != nil {
			r.endLocked(t, current, probe.Answer{}, err)
			return
		}
		current.cancel = func() {
			if r.connector.Cancel(attempt) {
				r.running--
			}
		}
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, t.Probe.Timeout)
	current.cancel = cancel
	prober := t.prober
	r.probes.Go(func() {
		defer cancel()
		answer, err := prober.Probe(ctx)
		r.end(t, current, answer, err)
	})
}

// end records the result of a probe, unless the target's probe has changed since it began.
func (r *runner) end(t *target, current *run, a probe.Answer, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endLocked(t, current, a, err)
}

// endLocked is end for a caller that holds mu.
func (r *runner) endLocked(t *target, current *run, a probe.Answer, err error) {
	r.running--
	if t.run != current || r.ctx.Err() != nil {
		return
	}
	t.run = nil
	now := time.Now()
	state := t.state()
	if late := now.Sub(current.begun) - t.Probe.Timeout; err != nil && late > stallTime {
		err = fmt.Errorf("the last probe %w: loxilb did not run for %v", probe.ErrUndecided, late.Round(time.Second))
	}
	switch {
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		r.shortage.record(now)
		r.queue.Push(t, now.Add(retryDelay))
		fallthrough
	case errors.Is(err, probe.ErrNotSent), errors.Is(err, probe.ErrUndecided):
		t.result, t.required = sanitize(err.Error()), 0
		return
	case err != nil:
		t.failure(sanitize(err.Error()), t.Probe.Fall, current.begun)
	default:
		t.success(sanitize(a.What), a.Delay, t.Probe.Rise, current.begun)
	}
	t.checked = now
	r.recordChange(t, state, now)
	r.followUnproven(t, now, current.begun)
}

// plainConnect reports whether a Connector can perform the probe, as it sends and receives no data.
func (t Target) plainConnect() bool {
	return t.Probe.Type == lb.ProbeTCP && t.Probe.Request == "" && t.Probe.Response == ""
}
