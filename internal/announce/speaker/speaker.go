// Package speaker is the BGP speaker of a node (RFC 4271): it keeps sessions with neighbors and
// announces routes to them, with gobgp as a library.
//
// Callers set the desired state. The speaker compares it with the running one, and retries what the
// machine refuses, such as a port in use. Sessions reports both. ReadFile reads the configuration
// of a gobgpd, as the existing loxilb starts it.
package speaker

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"loxilb/internal/host/monotime"
	"loxilb/internal/lb/bgp"
)

// retryTime is how long after a failure the speaker tries again.
const retryTime = time.Second

// Speaker keeps BGP sessions. Its methods may be called from any goroutine.
type Speaker struct {
	log     *slog.Logger
	changed chan struct{}
	retry   chan struct{} // has an element if apply must run again

	mu       sync.Mutex
	wanted   wanted
	engine   *engine         // nil: not running
	problem  string          // why it does not run although it should
	stopLoop func()          // ends loop; nil: not started
	loopDone <-chan struct{} // closed when loop has ended
}

// wanted is the desired state that callers have set.
type wanted struct {
	speaker   bgp.Speaker
	neighbors map[string]bgp.Neighbor
	routes    map[netip.Prefix]bgp.Attributes
	hasRoutes bool // SetRoutes was called
	policy    *policy
}

// New returns a speaker that does nothing before Start.
func New(log *slog.Logger) *Speaker {
	return &Speaker{
		log:     log,
		changed: make(chan struct{}, 1),
		retry:   make(chan struct{}, 1),
		wanted:  wanted{neighbors: map[string]bgp.Neighbor{}, policy: &policy{}},
	}
}

// Start starts the speaker, or changes how it runs: another AS number, router id or port restarts
// all sessions. It listens once there is a neighbor. With graceful restart, sessions also wait for
// the first SetRoutes: neighbors would drop routes that this node announced before its restart and
// does not announce again.
func (s *Speaker) Start(_ context.Context, g bgp.Speaker) error {
	if g.ASN == 0 {
		return fmt.Errorf("start BGP: the AS number is missing")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.engine != nil && mustRestart(s.wanted.speaker, g) {
		s.stopEngine("configuration change")
	}
	s.wanted.speaker = g
	if s.stopLoop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		s.stopLoop, s.loopDone = cancel, done
		go func() {
			defer close(done)
			s.loop(ctx)
		}()
	}
	s.apply()
	return nil
}

// mustRestart reports whether a change restarts all sessions.
func mustRestart(before, after bgp.Speaker) bool {
	return before.ASN != after.ASN || before.RouterID != after.RouterID || before.Port != after.Port || before.GracefulRestart != after.GracefulRestart
}

// Stop ends all sessions. Neighbors receive a Cease with the reason (RFC 9003) and drop the routes.
// An empty reason means that the daemon restarts: neighbors with graceful restart keep the routes.
// Neighbors and routes stay set for the next Start.
func (s *Speaker) Stop(_ context.Context, reason string) error {
	s.mu.Lock()
	stop, done := s.stopLoop, s.loopDone
	s.stopLoop = nil
	s.wanted.speaker = bgp.Speaker{}
	s.problem = ""
	e := s.engine
	if e != nil {
		s.stopEngine(reason)
	}
	s.mu.Unlock()
	if stop != nil {
		stop()
		<-done
	}
	if e != nil {
		e.tasks.Wait()
	}
	s.notify()
	return nil
}

// SetNeighbor adds a neighbor, or changes it: its session restarts if the change affects it.
func (s *Speaker) SetNeighbor(_ context.Context, n bgp.Neighbor) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted.neighbors[n.Key()] = n
	s.apply()
	return nil
}

// DeleteNeighbor ends the session with a neighbor. Deleting a missing neighbor succeeds.
func (s *Speaker) DeleteNeighbor(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.wanted.neighbors, key)
	s.apply()
	return nil
}

// SetRoutes replaces the announced routes. Neighbors receive only differences.
func (s *Speaker) SetRoutes(_ context.Context, routes []bgp.Route) error {
	want := make(map[netip.Prefix]bgp.Attributes, len(routes))
	for _, r := range routes {
		if !r.Prefix.IsValid() {
			return fmt.Errorf("announce routes: prefix %v is not valid", r.Prefix)
		}
		want[r.Prefix.Masked()] = r.Attributes
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted.routes, s.wanted.hasRoutes = want, true
	s.apply()
	return nil
}

// SetPolicies replaces sets, policies and their applications, and applies them to all routes. An
// error changes nothing.
func (s *Speaker) SetPolicies(_ context.Context, sets []bgp.DefinedSet, policies []bgp.Policy, apps []bgp.Application) error {
	p := &policy{sets, policies, apps}
	s.mu.Lock()
	same := p.equal(s.wanted.policy)
	s.mu.Unlock()
	if same {
		return nil
	}
	if err := p.check(); err != nil {
		return fmt.Errorf("set BGP policies: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted.policy = p
	s.apply()
	return nil
}

// Changed returns a channel that has an element after a session was established or has ended, or
// after the error that keeps it down has changed, but not after counters or BFD have changed.
func (s *Speaker) Changed() <-chan struct{} { return s.changed }

func (s *Speaker) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// loop applies the desired state again after failures, until ctx ends.
func (s *Speaker) loop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.retry:
		}
		if !monotime.Sleep(ctx, retryTime) {
			return
		}
		s.mu.Lock()
		if s.stopLoop != nil {
			s.apply()
		}
		s.mu.Unlock()
	}
}

// requestRetry makes loop apply the desired state after retryTime.
func (s *Speaker) requestRetry() {
	select {
	case s.retry <- struct{}{}:
	default:
	}
}

// canRun reports whether the speaker can run: it is configured, and has a neighbor and, with
// graceful restart, routes.
func (w *wanted) canRun() bool {
	return w.speaker.ASN != 0 && len(w.neighbors) > 0 && (w.hasRoutes || w.speaker.GracefulRestart == 0)
}

// apply brings the running speaker to the desired state. The caller holds s.mu.
func (s *Speaker) apply() {
	if !s.wanted.canRun() {
		if s.engine != nil && len(s.wanted.neighbors) == 0 {
			s.stopEngine("no neighbors")
		}
		return
	}
	if s.engine == nil {
		e, err := startEngine(s)
		if err != nil {
			s.fail(err)
			return
		}
		s.engine, s.problem = e, ""
	}
	if err := s.engine.apply(&s.wanted); err != nil {
		s.requestRetry()
	}
}

// fail records why the speaker does not run, logs it once, and tries again later.
func (s *Speaker) fail(err error) {
	if s.problem != err.Error() {
		s.problem = err.Error()
		s.log.Error("BGP speaker does not start; trying again", "error", err)
		s.notify()
	}
	s.requestRetry()
}

func (s *Speaker) stopEngine(reason string) {
	s.engine.stop(reason)
	s.engine = nil
	s.notify()
}
