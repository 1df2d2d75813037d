package rates

import (
	"context"

	"loxilb/internal/lb"
)

// Now returns the rates of all services together in the last window.
func (s *Sampler) Now() (Totals, Window) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.totals, s.last
}

// Service returns the load of a service in the last window.
func (s *Sampler) Service(key lb.Key) Load {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if one := s.services[key]; one != nil && one.window == s.window {
		return one.load
	}
	return Load{}
}

// Endpoints returns the loads of the endpoints of a service with this many endpoints.
func (s *Sampler) Endpoints(key lb.Key, endpoints int) []Load {
	type row struct {
		endpoint int
		id       uint32
	}
	rows := make([]row, 0, endpoints)
	s.src.EachEndpointID(key, func(endpoint int, id uint32) { rows = append(rows, row{endpoint, id}) })
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]Load, endpoints)
	for _, r := range rows {
		b := s.block(r.id)
		if b == nil || r.endpoint >= endpoints { // the store is ahead of the data path
			continue
		}
		b.mu.Lock()
		e := b.row(r.id)
		if out[r.endpoint].Recent == (Recent{}) { // of an inner service, the first endpoint with data
			out[r.endpoint].Recent = e.recent
		}
		if out[r.endpoint].Times.Count == 0 {
			out[r.endpoint].Times = e.times.times(s.src.Jiffy())
		}
		if e.window >= s.window {
			out[r.endpoint].Add(&e.rates)
			out[r.endpoint].Active += uint64(e.active)
		}
		b.mu.Unlock()
	}
	return out
}

// History is the last hour of all services together.
type History struct {
	Series // of the rates, then connections, half-open ones, packets dropped, SYNs challenged, packets refused
	Drops  map[string][]float32
}

// History returns the last hour of all services together.
func (s *Sampler) History() History {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := History{Series: s.history.columns(s.began, s.read), Drops: map[string][]float32{}}
	s.timeline.fill(&out.Series, s.read, s.src.Jiffy())
	for reason, kept := range s.reasons {
		out.Drops[reason] = kept.columns(s.began, s.read).Values[0]
	}
	return out
}

// ServiceHistory returns the last hour of a service: its rates, active connections and refused
// packets. It returns false if the history is not kept, since too many services had connections.
func (s *Sampler) ServiceHistory(key lb.Key) (Series, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	one := s.services[key]
	if one != nil && one.history != nil {
		out := one.history.columns(s.began, s.read)
		one.timeline.fill(&out, s.read, s.src.Jiffy())
		return out, true
	}
	out := s.silence.columns(s.began, s.read)
	s.quiet.fill(&out, s.read, s.src.Jiffy())
	return out, one == nil
}

// Watch makes the sampler read more often until end is called.
func (s *Sampler) Watch() (end func()) {
	s.watch(1)
	select {
	case s.woken <- struct{}{}:
	default: // a wake-up is pending
	}
	return func() { s.watch(-1) }
}

func (s *Sampler) watch(more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers += more
}

// Wait waits for a later window.
func (s *Sampler) Wait(ctx context.Context, seen Window) error {
	for {
		s.mu.RLock()
		last, next := s.last, s.next
		s.mu.RUnlock()
		if last != seen {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-next:
		}
	}
}
