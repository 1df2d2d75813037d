package reconcile

import (
	"log/slog"
	"net/netip"
	"time"

	"loxilb/internal/control/compile"
	"loxilb/internal/lb"
)

// takers knows since when endpoints take new connections, of services where that matters: where endpoints that come are to have their
// share slowly, and where there are backups. The goroutine of the loop alone touches it.
type takers struct {
	log      *slog.Logger
	now      func() time.Time
	again    func(lb.Key, time.Duration) *time.Timer // has a service applied after a while
	services map[lb.Key]*taking
}

// taking are the endpoints of a service that take new connections.
type taking struct {
	came  map[netip.AddrPort]time.Time // when each came; zero: it has all of its share
	level uint8                        // of backups, that is needed
	step  *time.Timer                  // until some have more of their share
}

func newTakers(log *slog.Logger, mark func(...lb.Key)) *takers {
	return &takers{
		log: log, now: time.Now, services: map[lb.Key]*taking{},
		again: func(k lb.Key, d time.Duration) *time.Timer { return time.AfterFunc(d, func() { mark(k) }) },
	}
}

// forget forgets a service.
func (t *takers) forget(k lb.Key) {
	if was := t.services[k]; was != nil && was.step != nil {
		was.step.Stop()
	}
	delete(t.services, k)
}

// moving tells whether endpoints of a service are about to have more of their share.
func (t *takers) moving(k lb.Key) bool {
	is := t.services[k]
	return is != nil && is.step != nil
}

// weights are what the endpoints of a service take from now on. up is as in compile.Takers; before tells the weights that they have in the
// data path; nil: it does not have the service.
func (t *takers) weights(s *lb.Service, up func(lb.Endpoint) bool, before func() map[netip.AddrPort]uint32) compile.Weights {
	was := t.services[s.Key]
	t.forget(s.Key)
	if s.SlowStart == 0 && !s.HasBackups() {
		return compile.Weights{Takes: compile.Takers(s, up)}
	}
	is := &taking{}
	t.services[s.Key] = is
	since := t.since(s, was, before)
	takes := compile.UpTakers(s, up)
	is.level = t.level(s, was, takes, since)
	compile.Standby(s, takes, is.level)
	w := compile.Weights{Takes: takes}
	if s.SlowStart == 0 {
		return w
	}
	is.came = map[netip.AddrPort]time.Time{}
	shares, wait := make([]uint8, len(takes)), time.Duration(0)
	for i, e := range s.Endpoints {
		shares[i] = compile.Tenths
		if takes[i] == 0 {
			continue
		}
		came := since(e)
		share, next := shareOf(s, t.now().Sub(came))
		if is.came[e.AddrPort()], shares[i] = came, share; share == compile.Tenths {
			continue
		}
		w.Shares = shares
		if wait == 0 || next < wait {
			wait = next
		}
	}
	if wait > 0 {
		is.step = t.again(s.Key, wait)
	}
	return w
}

// since tells when an endpoint that takes connections came: now, if it took none before. What an earlier process has begun, the data path
// says; the endpoints of a service that is new come all together, and none of them slowly.
func (t *takers) since(s *lb.Service, was *taking, rows func() map[netip.AddrPort]uint32) func(lb.Endpoint) time.Time {
	now := t.now()
	if s.SlowStart == 0 {
		return func(lb.Endpoint) time.Time { return time.Time{} }
	}
	if was != nil && was.came != nil {
		return func(e lb.Endpoint) time.Time {
			if came, ok := was.came[e.AddrPort()]; ok {
				return came
			}
			return now
		}
	}
	before := rows()
	tenths, slow := tenthsOf(s, before)
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

// tenthsOf is how much of its share each endpoint has in the data path. slow: some came slowly, so that this is what it says.
func tenthsOf(s *lb.Service, before map[netip.AddrPort]uint32) (tenths map[netip.AddrPort]uint32, slow bool) {
	tenths = map[netip.AddrPort]uint32{}
	for _, e := range s.Endpoints {
		weight, has := uint32(e.Weight), before[e.AddrPort()]
		if weight == 0 || has == 0 {
			continue
		}
		tenths[e.AddrPort()] = has / weight
		slow = slow || has > weight
		if has%weight != 0 || has > compile.Tenths*weight {
			tenths[e.AddrPort()] = compile.Tenths // its weight was another one
		}
	}
	return tenths, slow
}

// shareOf is how many tenths an endpoint has that came so long ago, and after how long it has one more.
func shareOf(s *lb.Service, ago time.Duration) (tenths uint8, next time.Duration) {
	step := s.SlowStart / (compile.Tenths - 1)
	if ago >= s.SlowStart {
		return compile.Tenths, 0
	}
	n := max(0, ago) / step
	return uint8(min(1+n, compile.Tenths-1)), (n+1)*step - max(0, ago)
}

// level is the level of backups that take connections. Those that are no longer needed go on while all that are to take over come slowly.
func (t *takers) level(s *lb.Service, was *taking, takes []uint32, since func(lb.Endpoint) time.Time) uint8 {
	level, before := s.Level(takes), uint8(0)
	if was != nil {
		before = was.level
	}
	if level < before && t.allSlow(s, takes, level, since) {
		return before
	}
	switch {
	case level > before:
		t.log.Warn("backups get new connections: too little of those before them is up", "service", s.Key.String(), "level", level)
	case level < before:
		t.log.Info("backups get no new connections any more", "service", s.Key.String(), "level", level)
	}
	return level
}

// allSlow tells whether no endpoint up to a level has all of its share yet.
func (t *takers) allSlow(s *lb.Service, takes []uint32, level uint8, since func(lb.Endpoint) time.Time) bool {
	for i, e := range s.Endpoints {
		if takes[i] == 0 || e.Backup > level {
			continue
		}
		if share, _ := shareOf(s, t.now().Sub(since(e))); share == compile.Tenths {
			return false
		}
	}
	return true
}
