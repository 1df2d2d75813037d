package health

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"loxilb/internal/control/health/probe"
	"loxilb/internal/lb"
)

// Config has the dependencies and options of a Monitor.
type Config struct {
	Log *slog.Logger
	// Changed is called when a target's State or ProbeState changes: only by Run, one call at a
	// time and without locks, so it may call the Monitor, and may be slow. Several changes of a
	// target meanwhile may be one call; a target that was removed may get one, too.
	Changed func(key string)
	// Descriptors bounds concurrent probes; 0: the process's limit of open files, less an
	// eighth.
	Descriptors int
	// Files is the directory that files of probes (CA, certificate, key) are below.
	Files string
	// Redirect redirects packets of a socket from a target's Addr to its VIP; for targets with
	// a VIP.
	Redirect func(fd int, t Target) error
	// Prober replaces probe.New, for tests.
	Prober func(probe.Question) probe.Prober
}

// atOnce is the number of new targets probed at once. More are spread over time, like later probes.
const atOnce = 32

// Monitor probes targets, and tracks their states. Its methods are safe for concurrent use, before
// and while it runs.
type Monitor struct {
	config   Config
	sockets  *probe.Sockets
	shortage shortage
	wake     chan struct{} // capacity 1: something is due earlier than Run expects

	mu      sync.Mutex
	targets map[string]*target
	queue   probe.Queue[*target]
	fresh   int // targets that wait for their first probe
	// unproven is the number of probed targets that were never up.
	unproven int
	daily    int // probes a day of all
	running  int // running probes, including cancelled ones
	limit    int // limit of running
	changed  map[string]struct{}
	notify   chan struct{} // capacity 1: changed has members
}

// target is a probed target.
type target struct {
	probe.QueueItem // when the next probe is due, or can be tried
	key             string
	Target
	prober probe.Prober
	phase  time.Time // when the next probe is due, whenever it can be tried
	first  bool      // not probed yet
	set    time.Time // when its probes began
	// unproven: it is probed, and was never up.
	unproven bool
	daily    int  // probes a day
	run      *run // the probe that runs
	verdict
}

// Due is the target's place in the queue.
func (t *target) Due() *probe.QueueItem { return &t.QueueItem }

// New returns a Monitor that does nothing until Run.
func New(c Config) *Monitor {
	m := &Monitor{
		config: c, sockets: &probe.Sockets{}, wake: make(chan struct{}, 1), targets: map[string]*target{},
		changed: map[string]struct{}{}, notify: make(chan struct{}, 1), limit: c.Descriptors,
	}
	m.shortage.log = c.Log
	if m.limit == 0 {
		m.limit = descriptors()
	}
	return m
}

// Set adds a target, or changes it in place: its state and history stay. If the address, port or
// type of probe changes, its state becomes unknown; overrides and ejections stay.
func (m *Monitor) Set(key string, wanted Target) {
	wanted = wanted.resolved()
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.targets[key]
	if t == nil {
		t = &target{key: key, Target: wanted, verdict: verdict{since: now}}
		m.targets[key] = t
		m.begin(t, now)
		return
	}
	before := t.Target
	t.Target = wanted
	switch {
	case !before.sameSubject(wanted):
		state := t.state()
		m.halt(t)
		t.prober = nil
		t.verdict = verdict{since: now, override: t.override, overrideReason: t.overrideReason, passive: t.passive, probeStateSeen: t.override, notedSince: now}
		if t.state() != state {
			m.announce(t)
		}
		m.begin(t, now)
	case !before.sameQuestion(wanted):
		m.halt(t)
		t.restart()
		m.begin(t, now)
	case wanted.Probe.Type != lb.ProbeNone:
		m.budget(t, int(24*time.Hour/wanted.Probe.Interval))
		if t.phase.Sub(now) > wanted.Probe.Interval {
			t.phase = now.Add(rand.N(wanted.Probe.Interval))
			m.push(t, t.phase)
		}
	}
}

// question returns a target's question.
func (m *Monitor) question(t Target) probe.Question {
	q := t.question()
	if t.VIP.IsValid() && m.config.Redirect != nil {
		q.Endpoint, q.Redirect = t.Addr, func(fd int) error { return m.config.Redirect(fd, t) }
	}
	return q
}

// budget notes how often a target is probed.
func (m *Monitor) budget(t *target, daily int) {
	m.daily += daily - t.daily
	t.daily = daily
}

// begin schedules the first probe of a target.
func (m *Monitor) begin(t *target, now time.Time) {
	if t.Probe.Type == lb.ProbeNone {
		state := t.state()
		t.probed, t.what = Up, "not probed, and so taken to be up"
		m.recordChange(t, state, now)
		return
	}
	switch {
	case m.config.Prober != nil:
		t.prober = m.config.Prober(m.question(t.Target))
	case t.plainConnect():
		t.prober = nil
	default:
		before := t.prober
		t.prober = probe.New(m.question(t.Target), m.sockets, probe.Files{Dir: m.config.Files, Log: m.config.Log})
		probe.Remember(t.prober, before)
	}
	m.budget(t, int(24*time.Hour/t.Probe.Interval))
	m.setUnproven(t, !t.wasUp)
	t.first, t.set = true, now
	m.fresh++
	t.phase = now
	if m.fresh > atOnce {
		t.phase = now.Add(rand.N(min(t.Probe.Interval, time.Second)))
	}
	m.push(t, t.phase)
}

// halt stops probing a target. The result of a running probe is ignored.
func (m *Monitor) halt(t *target) {
	m.queue.Remove(t)
	m.budget(t, 0)
	m.setUnproven(t, false)
	if t.first {
		t.first = false
		m.fresh--
	}
	if t.run != nil {
		t.run.cancel()
		t.run = nil
	}
}

// push schedules a probe of the target.
func (m *Monitor) push(t *target, at time.Time) {
	next, ok := m.queue.Next()
	m.queue.Push(t, at)
	if !ok || at.Before(next) {
		signal(m.wake)
	}
}

// Remove forgets a target.
func (m *Monitor) Remove(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.targets[key]; t != nil {
		m.halt(t)
		delete(m.targets, key)
	}
}

// Status returns the state of a target.
func (m *Monitor) Status(key string) (Status, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.targets[key]
	if t == nil {
		return Status{}, false
	}
	s := t.status(t.subject())
	s.Fall, s.Interval = t.Probe.Fall, t.Probe.Interval
	return s, true
}

// State returns a target's state, and its state without clients' handshakes. It is ten times as
// fast as Status. false: the target is not set.
func (m *Monitor) State(key string) (state, probe State, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.targets[key]
	if t == nil {
		return Unknown, Unknown, false
	}
	return t.state(), t.probeState(), true
}

// Override sets an agent's report about a target, and its reason. It holds until the next Override;
// Unknown returns the target to its probes, which never stop. An unknown key is ignored.
func (m *Monitor) Override(key string, s State, evidence string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.targets[key]; t != nil {
		state := t.state()
		t.override, t.overrideReason = s, evidence
		m.recordChange(t, state, time.Now())
	}
}

// Eject reports that clients' handshakes with a target fail, and why; "": they do not. It holds
// until the next Eject, whatever the target's probes report, but an Override precedes it. It is
// ignored for an unknown key.
func (m *Monitor) Eject(key, evidence string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.targets[key]; t != nil {
		state := t.state()
		if t.Probe.Type == lb.ProbeNone && t.passive != "" {
			t.what = "not probed; clients' handshakes succeed again"
		}
		t.passive = evidence
		m.recordChange(t, state, time.Now())
	}
}

// recordChange reports a change of a target's state.
func (m *Monitor) recordChange(t *target, before State, now time.Time) {
	if t.recordState(before, now, t.subject()) {
		m.announce(t)
	}
}

func (m *Monitor) announce(t *target) {
	m.changed[t.key] = struct{}{}
	signal(m.notify)
}

// announcing calls Changed until ctx ends.
func (m *Monitor) announcing(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.notify:
		}
		m.mu.Lock()
		changed := m.changed
		m.changed = map[string]struct{}{}
		m.mu.Unlock()
		for key := range changed {
			if m.config.Changed != nil && ctx.Err() == nil {
				m.config.Changed(key)
			}
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
