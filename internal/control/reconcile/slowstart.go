package reconcile

import (
	"log/slog"
	"net/netip"
	"time"

	"loxilb/internal/control/compile"
	"loxilb/internal/lb"
)

// slowStart tracks when each endpoint became eligible for new connections, so its weight can ramp
// up and backups can stay in use meanwhile. It covers services with a slow start or with backups.
// Only the loop's goroutine uses it.
type slowStart struct {
	log      *slog.Logger
	now      func() time.Time
	schedule func(lb.Key, time.Duration) *time.Timer // applies a service again after a delay
	ramps    map[lb.Key]*ramp
}

// ramp is the slow start of one service.
type ramp struct {
	eligibleSince map[netip.AddrPort]time.Time // by endpoint; zero: no ramp, full weight
	backupLevel   uint8                        // backups up to this level are in use
	timer         *time.Timer                  // fires when the next weight increases
}

func newSlowStart(log *slog.Logger, mark func(...lb.Key)) *slowStart {
	return &slowStart{
		log: log, now: time.Now, ramps: map[lb.Key]*ramp{},
		schedule: func(k lb.Key, d time.Duration) *time.Timer { return time.AfterFunc(d, func() { mark(k) }) },
	}
}

// forget removes a service and stops its timer.
func (t *slowStart) forget(k lb.Key) {
	if previous := t.ramps[k]; previous != nil && previous.timer != nil {
		previous.timer.Stop()
	}
	delete(t.ramps, k)
}

// isRamping reports whether weights of a service's endpoints are still increasing.
func (t *slowStart) isRamping(k lb.Key) bool {
	current := t.ramps[k]
	return current != nil && current.timer != nil
}

// weights returns the current weights of a service's endpoints. up is as in
// compile.EffectiveWeights. before returns the weights stored in the data path, nil if the service
// is not there.
func (t *slowStart) weights(s *lb.Service, up func(lb.Endpoint) bool, before func() map[netip.AddrPort]uint32) compile.Weights {
	previous := t.ramps[s.Key]
	t.forget(s.Key)
	if s.SlowStart == 0 && !s.HasBackups() {
		return compile.Weights{Current: compile.EffectiveWeights(s, up)}
	}
	current := &ramp{}
	t.ramps[s.Key] = current
	since := t.eligibleSince(s, previous, before)
	weights := compile.HealthyWeights(s, up)
	current.backupLevel = t.backupLevel(s, previous, weights, since)
	compile.ClearBackups(s, weights, current.backupLevel)
	w := compile.Weights{Current: weights}
	if s.SlowStart == 0 {
		return w
	}
	current.eligibleSince = map[netip.AddrPort]time.Time{}
	fractions, wait := make([]uint8, len(weights)), time.Duration(0)
	for i, e := range s.Endpoints {
		fractions[i] = compile.Tenths
		if weights[i] == 0 {
			continue
		}
		eligible := since(e)
		fraction, next := weightFraction(s, t.now().Sub(eligible))
		if current.eligibleSince[e.AddrPort()], fractions[i] = eligible, fraction; fraction == compile.Tenths {
			continue
		}
		w.Fractions = fractions
		if wait == 0 || next < wait {
			wait = next
		}
	}
	if wait > 0 {
		current.timer = t.schedule(s.Key, wait)
	}
	return w
}

// eligibleSince returns a function that reports when an endpoint became eligible: now, if it was
// not eligible before. A ramp that an earlier process began continues from the weights in the data
// path. The endpoints of a new service all start at full weight: they share the load from the
// start.
func (t *slowStart) eligibleSince(s *lb.Service, previous *ramp, rows func() map[netip.AddrPort]uint32) func(lb.Endpoint) time.Time {
	now := t.now()
	if s.SlowStart == 0 {
		return func(lb.Endpoint) time.Time { return time.Time{} }
	}
	if previous != nil && previous.eligibleSince != nil {
		return func(e lb.Endpoint) time.Time {
			if eligible, ok := previous.eligibleSince[e.AddrPort()]; ok {
				return eligible
			}
			return now
		}
	}
	before := rows()
	tenths, slow := storedFractions(s, before)
	return func(e lb.Endpoint) time.Time {
		n, known := tenths[e.AddrPort()]
		switch {
		case before == nil || known && (!slow || n >= compile.Tenths):
			return time.Time{}
		case !known:
			return now
		}
		return now.Add(-s.SlowStart * time.Duration(n-1) / (compile.Tenths - 1))
	}
}

// storedFractions returns each endpoint's weight in the data path in tenths. slow reports whether
// any row was written during a slow start, so the tenths are meaningful.
func storedFractions(s *lb.Service, before map[netip.AddrPort]uint32) (tenths map[netip.AddrPort]uint32, slow bool) {
	tenths = map[netip.AddrPort]uint32{}
	for _, e := range s.Endpoints {
		weight, has := uint32(e.Weight), before[e.AddrPort()]
		if weight == 0 || has == 0 {
			continue
		}
		tenths[e.AddrPort()] = has / weight
		slow = slow || has > weight
		if has%weight != 0 || has > compile.Tenths*weight {
			tenths[e.AddrPort()] = compile.Tenths // its configured weight has changed
		}
	}
	return tenths, slow
}

// weightFraction returns the tenths of its weight that an endpoint has at this age, and when the
// next tenth is due.
func weightFraction(s *lb.Service, age time.Duration) (tenths uint8, next time.Duration) {
	step := s.SlowStart / (compile.Tenths - 1)
	if age >= s.SlowStart {
		return compile.Tenths, 0
	}
	n := max(0, age) / step
	return uint8(min(1+n, compile.Tenths-1)), (n+1)*step - max(0, age)
}

// backupLevel returns the level up to which backups receive connections. Backups that are no longer
// needed stay in use while all endpoints that replace them are ramping up.
func (t *slowStart) backupLevel(s *lb.Service, previous *ramp, weights []uint32, since func(lb.Endpoint) time.Time) uint8 {
	level, before := s.ActiveLevel(weights), uint8(0)
	if previous != nil {
		before = previous.backupLevel
	}
	if level < before && t.allRamping(s, weights, level, since) {
		return before
	}
	switch {
	case level > before:
		t.log.Warn("backups get new connections: too few endpoints before them are up", "service", s.Key.String(), "level", level)
	case level < before:
		t.log.Info("backups get no new connections any more", "service", s.Key.String(), "level", level)
	}
	return level
}

// allRamping reports whether every endpoint up to a level is still below its full weight.
func (t *slowStart) allRamping(s *lb.Service, weights []uint32, level uint8, since func(lb.Endpoint) time.Time) bool {
	for i, e := range s.Endpoints {
		if weights[i] == 0 || e.Backup > level {
			continue
		}
		if fraction, _ := weightFraction(s, t.now().Sub(since(e))); fraction == compile.Tenths {
			return false
		}
	}
	return true
}
