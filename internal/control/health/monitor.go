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
	// Run calls Changed when a target's State or ProbeState has changed: one call at a time and
	// without locks, so Changed may be slow, and may call the Monitor. There may be one call
	// for several changes of a target, and a call for a target that was removed.
	Changed func(key string)
	// Descriptors is the maximum number of concurrent probes; 0: the process's limit of open
	// files, less an eighth.
	Descriptors int
	// Files is the directory of probes' files (CA, certificate, key).
	Files string
	// CompatFiles is the directory of the client certificate that https probes without one show, as
	// those of the existing loxilb do; empty: none.
	CompatFiles string
	// Redirect sets the destination address of a socket's packets to the VIP of a target that
	// has one.
	Redirect func(fd int, t Target) error
	// Prober replaces probe.New, for tests.
	Prober func(probe.Spec) probe.Prober
}

// atOnce is the number of new targets that are probed immediately. The first probes of further ones
// are spread over time.
const atOnce = 32

// Monitor probes targets, and tracks their states. Its methods are safe for concurrent use, before
// and while it runs.
type Monitor struct {
	config   Config
	sockets  *probe.Sockets
	shortage shortage
	wake     chan struct{} // capacity 1: a probe is due earlier than Run expects

	mu       sync.Mutex
	targets  map[string]*target
	queue    probe.Queue[*target]
	unprobed int // number of targets that wait for their first probe
	unproven int // number of targets that are probed and were never up
	daily    int // probes per day, of all targets
	running  int // number of running probes, including cancelled ones
	limit    int // limit of running
	changed  map[string]struct{}
	notify   chan struct{} // capacity 1: changed has members
}

// target is a target and its state.
type target struct {
	probe.QueueItem // when the next probe is due, or is retried
	key             string
	Target
	prober   probe.Prober // nil: runner.connector probes it
	phase    time.Time    // when the next probe is due, apart from retries
	unprobed bool         // it waits for its first probe
	begun    time.Time    // when its probes began
	unproven bool         // it is probed, and was never up
	daily    int          // probes per day
	run      *run         // the running probe; nil: none
	verdict
}

// Due implements probe.Queue.
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

// Set adds or changes a target. A changed target keeps its state and history, unless the address,
// port or type of probe has changed: then its probe state becomes unknown, and only overrides and
// ejections stay.
func (m *Monitor) Set(key string, wanted Target) {
	wanted = wanted.withDefaults()
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.targets[key]
	if t == nil {
		t = &target{key: key, Target: wanted, verdict: verdict{since: now}}
		m.targets[key] = t
		m.startProbing(t, now)
		return
	}
	before := t.Target
	t.Target = wanted
	switch {
	case !before.sameEndpoint(wanted):
		state := t.state()
		m.stopProbing(t)
		t.prober = nil
		t.verdict = verdict{since: now, override: t.override, overrideReason: t.overrideReason, ejection: t.ejection, lastProbeState: t.override, probeSince: now}
		if t.state() != state {
			m.addChanged(t)
		}
		m.startProbing(t, now)
	case !before.sameProbe(wanted):
		m.stopProbing(t)
		t.resetCounts()
		m.startProbing(t, now)
	case wanted.Probe.Type != lb.ProbeNone:
		m.setDaily(t, int(24*time.Hour/wanted.Probe.Interval))
		if t.phase.Sub(now) > wanted.Probe.Interval {
			t.phase = now.Add(rand.N(wanted.Probe.Interval))
			m.schedule(t, t.phase)
		}
	}
}

// spec returns the probe of a target, with the redirection to its VIP.
func (m *Monitor) spec(t Target) probe.Spec {
	spec := t.spec()
	if t.VIP.IsValid() && m.config.Redirect != nil {
		spec.Endpoint, spec.Redirect = t.Addr, func(fd int) error { return m.config.Redirect(fd, t) }
	}
	return spec
}

// setDaily sets how often a target is probed per day.
func (m *Monitor) setDaily(t *target, daily int) {
	m.daily += daily - t.daily
	t.daily = daily
}

// startProbing schedules the first probe of a target.
func (m *Monitor) startProbing(t *target, now time.Time) {
	if t.Probe.Type == lb.ProbeNone {
		state := t.state()
		t.probed, t.result = Up, "not probed, so assumed to be up"
		m.recordChange(t, state, now)
		return
	}
	switch {
	case m.config.Prober != nil:
		t.prober = m.config.Prober(m.spec(t.Target))
	case t.plainConnect():
		t.prober = nil
	default:
		before := t.prober
		t.prober = probe.New(m.spec(t.Target), m.sockets, probe.Files{Dir: m.config.Files, Compat: m.config.CompatFiles, Log: m.config.Log})
		probe.TransferState(before, t.prober)
	}
	m.setDaily(t, int(24*time.Hour/t.Probe.Interval))
	m.setUnproven(t, !t.wasUp)
	t.unprobed, t.begun = true, now
	m.unprobed++
	t.phase = now
	if m.unprobed > atOnce {
		t.phase = now.Add(rand.N(min(t.Probe.Interval, time.Second)))
	}
	m.schedule(t, t.phase)
}

// stopProbing removes a target's probes. The result of a running probe is ignored.
func (m *Monitor) stopProbing(t *target) {
	m.queue.Remove(t)
	m.setDaily(t, 0)
	m.setUnproven(t, false)
	if t.unprobed {
		t.unprobed = false
		m.unprobed--
	}
	if t.run != nil {
		t.run.cancel()
		t.run = nil
	}
}

// schedule schedules the next probe of a target.
func (m *Monitor) schedule(t *target, at time.Time) {
	next, ok := m.queue.Next()
	m.queue.Push(t, at)
	if !ok || at.Before(next) {
		signal(m.wake)
	}
}

// Remove removes a target.
func (m *Monitor) Remove(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.targets[key]; t != nil {
		m.stopProbing(t)
		delete(m.targets, key)
	}
}

// Status returns the status of a target; false: the target is not set.
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

// State returns a target's State and ProbeState; false: the target is not set. It is ten times as
// fast as Status.
func (m *Monitor) State(key string) (state, probe State, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.targets[key]
	if t == nil {
		return Unknown, Unknown, false
	}
	return t.state(), t.probeState(), true
}

// Override sets an agent's report about a target, and the evidence for it. It takes precedence over
// probes, which continue, until the next call; Unknown withdraws it. An unknown key is ignored.
func (m *Monitor) Override(key string, s State, evidence string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.targets[key]; t != nil {
		state := t.state()
		t.override, t.overrideReason = s, evidence
		m.recordChange(t, state, time.Now())
	}
}

// Eject makes a target down because clients' handshakes with it fail, and sets the evidence; "":
// they succeed again. It takes precedence over probes until the next call, but an Override takes
// precedence over it. An unknown key is ignored.
func (m *Monitor) Eject(key, evidence string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.targets[key]; t != nil {
		state := t.state()
		if t.Probe.Type == lb.ProbeNone && t.ejection != "" {
			t.result = "not probed; clients' handshakes succeed again"
		}
		t.ejection = evidence
		m.recordChange(t, state, time.Now())
	}
}

// recordChange records the state of a target if it is no longer the one before.
func (m *Monitor) recordChange(t *target, before State, now time.Time) {
	if t.recordState(before, now, t.subject()) {
		m.addChanged(t)
	}
}

// addChanged causes a call of Changed for a target.
func (m *Monitor) addChanged(t *target) {
	m.changed[t.key] = struct{}{}
	signal(m.notify)
}

// notifyChanges calls Changed for changed targets until ctx ends.
func (m *Monitor) notifyChanges(ctx context.Context) {
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
