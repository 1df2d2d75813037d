package health

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"loxilb/internal/control/health/probe"
	"loxilb/internal/lb"
)

const (
	// tick is the least time between two rounds. All work due by then is done in one round:
	// waking up costs more than a probe.
	tick = 10 * time.Millisecond
	// With more than busy probes a day (2,000 a second), rounds are busyTick apart. Two hundred
	// probes in a row use the CPU's caches well; fifty cost a third more per probe.
	busyTick = 50 * time.Millisecond
	busy     = 2000 * 86400
	// share is the time per probe in a round, so probes due at once, as after a pause of the
	// process, do not all start at once.
	share = 20 * time.Microsecond
	// retryDelay is the delay before a probe is retried that had no file descriptor.
	retryDelay = time.Second
)

// run is a probe that runs.
type run struct {
	cancel func()
	begun  time.Time
}

// rounds is a Monitor that runs.
type rounds struct {
	*Monitor
	ctx       context.Context
	connector *probe.Connector
	probes    sync.WaitGroup
}

// Run probes until ctx ends, and leaves nothing running.
func (m *Monitor) Run(ctx context.Context) {
	r := rounds{Monitor: m, ctx: ctx}
	var announcing sync.WaitGroup
	announcing.Go(func() { m.announcing(ctx) })
	defer announcing.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		connector, err := probe.NewConnector()
		if err == nil {
			r.connector = connector
			break
		}
		m.mu.Lock()
		m.shortage.hit(time.Now())
		m.mu.Unlock()
		if !sleep(ctx, timer, retryDelay, nil) {
			return
		}
	}
	defer r.stop()
	for sleep(ctx, timer, r.pause(), nil) {
		if idle := r.idle(); idle > 0 && !sleep(ctx, timer, idle, m.wake) {
			return
		}
		r.connector.Collect()
		r.startDue()
		r.connector.Collect() // nearby endpoints have answered already
	}
}

// pause returns the least wait for the next round.
func (r *rounds) pause() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.daily > busy {
		return busyTick
	}
	return tick
}

// sleep waits for a time or wake; false: ctx has ended.
func sleep(ctx context.Context, timer *time.Timer, d time.Duration, wake <-chan struct{}) bool {
	timer.Reset(d)
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-wake:
	}
	return ctx.Err() == nil
}

// stop ends all probes, without a result.
func (r *rounds) stop() {
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

// idle returns the time until the next work.
func (r *rounds) idle() time.Duration {
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

// startDue starts due probes, the longest waiting first, until the round's time is over.
func (r *rounds) startDue() {
	now := time.Now()
	for n := r.pause() / share; n > 0 && r.startNext(now); n-- {
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shortage.check(now)
}

func (r *rounds) startNext(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.queue.Next(); !ok || at.After(now) {
		return false
	}
	if r.running >= r.limit {
		r.shortage.hit(now)
		return false
	}
	if r.running+r.connector.Idle() >= r.limit {
		r.connector.DropIdle() // another one may need the descriptor
	}
	t, _ := r.queue.Pop(now)
	if t.run != nil { // it has timed out, and is about to end
		r.queue.Push(t, now.Add(tick))
		return true
	}
	// The second probe of a target comes at a random time within its interval, and later ones
	// follow that: so targets that began together spread, and stay apart.
	interval := t.Probe.Interval
	if t.first {
		t.first = false
		r.fresh--
		t.phase = now.Add(rand.N(interval) + 1)
	} else {
		t.phase = t.phase.Add(interval * (1 + now.Sub(t.phase)/interval))
	}
	r.queue.Push(t, t.phase)
	r.start(t)
	return true
}

// start starts a probe.
func (r *rounds) start(t *target) {
	r.running++
	current := &run{begun: time.Now()}
	t.run = current
	if t.prober == nil {
		attempt, err := r.connector.Start(r.question(t.Target), func(a probe.Answer, err error) { r.end(t, current, a, err) })
		if err != nil {
			r.ended(t, current, probe.Answer{}, err)
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

func (r *rounds) end(t *target, current *run, a probe.Answer, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended(t, current, a, err)
}

// ended counts the result, unless the target's probe has changed.
func (r *rounds) ended(t *target, current *run, a probe.Answer, err error) {
	r.running--
	if t.run != current || r.ctx.Err() != nil {
		return
	}
	t.run = nil
	now := time.Now()
	state := t.state()
	switch {
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		r.shortage.hit(now)
		r.queue.Push(t, now.Add(retryDelay))
		fallthrough
	case errors.Is(err, probe.ErrNotSent), errors.Is(err, probe.ErrUndecided):
		t.what, t.of = clause(err.Error()), 0
		return
	case err != nil:
		t.failure(clause(err.Error()), t.Probe.Fall, current.begun)
	default:
		t.success(clause(a.What), a.Delay, t.Probe.Rise, current.begun)
	}
	t.checked = now
	r.recordChange(t, state, now)
	r.followUnproven(t, now, current.begun)
}

// plainConnect reports whether a Connector can do the probe: nothing is sent or received.
func (t Target) plainConnect() bool {
	return t.Probe.Type == lb.ProbeTCP && t.Probe.Request == "" && t.Probe.Response == ""
}
