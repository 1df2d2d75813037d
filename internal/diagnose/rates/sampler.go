package rates

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// The intervals of reading, and the limits of its cost: 1/rest of a CPU.
const (
	everyUnwatched, restUnwatched = 5 * time.Second, 200
	everyWatched, restWatched     = time.Second, 10
	maxEvery                      = time.Minute
)

// The resolution of the last hour.
const (
	totalsStep, totalsSteps   = 5 * time.Second, 720
	serviceStep, serviceSteps = 15 * time.Second, 240 // an outage of 40 s has its own step
	maxHistories              = 10_000                // of services
)

// Source is the source of counters.
type Source interface {
	// EachCount calls yield with the counters of each selected endpoint. Neither may block.
	EachCount(wanted func(id uint32, connections, tracked uint64) bool, yield func(*report.EndpointCount)) error
	// EachEndpointID calls yield with the ID of each row of a service, and the row's endpoint.
	EachEndpointID(key lb.Key, yield func(endpoint int, id uint32))
	// EachRefused calls yield with the packets that each service has refused so far, if there
	// are any.
	EachRefused(yield func(key lb.Key, packets uint64)) error
	// Drops counts packets dropped, by the name of the reason.
	Drops() map[string]uint64
	// Occupancy returns the number of tracked connections and its limit.
	Occupancy() (connections, limit uint64)
	// Fullness returns the number of half-open connections.
	Fullness() (report.Pressure, error)
	// Challenges returns the number of challenged SYNs so far, and of answers.
	Challenges() (sent, answered uint64, err error)
	// Jiffy returns the unit of the times of handshakes.
	Jiffy() time.Duration
}

// Sampler reads counters periodically.
type Sampler struct {
	src   Source
	log   *slog.Logger
	now   func() time.Time
	seed  maphash.Seed
	began time.Time
	woken chan struct{} // capacity 1: a watcher has appeared

	// Used only by the sampler.
	read       time.Duration // when counters were read last
	whole      bool          // they have been read before
	failed     bool          // the last reading failed
	drops      map[string]uint64
	challenges uint64
	refused    map[lb.Key]uint64 // packets, of services that have refused any
	pruned     time.Duration

	mu        sync.RWMutex // guards the following members, which only the sampler changes
	window    uint32       // number of the last one, from 1 on
	last      Window
	totals    Totals
	history   *ring
	timeline  *timeline        // handshakes of all services
	silence   *ring            // the history of services without traffic
	quiet     *timeline        // of services without a history
	reasons   map[string]*ring // history of drops
	blocks    []*block         // endpoints by ID
	services  map[lb.Key]*service
	histories int
	watchers  int
	next      chan struct{} // closed when there is another window
}

// service is a service with recent connections.
type service struct {
	key     lb.Key
	added   counts // since the last window, by the current reading
	active  uint64 // active connections, by the current reading
	refused uint64 // packets since the last window
	touched bool   // whether the current reading has counted the service

	handshakes times // since the last window, as added
	times      latest

	load       Load
	window     uint32        // number of the window of load
	lastActive time.Duration // time of the last increase
	history    *ring         // nil: none
	timeline   *timeline     // nil: none
}

// New returns a sampler. Run starts reading.
func New(src Source, log *slog.Logger) *Sampler { return newSampler(src, log, time.Now) }

func newSampler(src Source, log *slog.Logger, now func() time.Time) *Sampler {
	return &Sampler{
		src: src, log: log, now: now, seed: maphash.MakeSeed(), began: now(), woken: make(chan struct{}, 1), next: make(chan struct{}),
		history: newRing(totalsStep, totalsSteps, totalsWidth), timeline: newTimeline(totalsStep, totalsSteps),
		silence: newRing(serviceStep, serviceSteps, serviceWidth), quiet: newTimeline(serviceStep, serviceSteps), reasons: map[string]*ring{}, services: map[lb.Key]*service{},
	}
}

// Run reads until ctx ends.
func (s *Sampler) Run(ctx context.Context) {
	for ctx.Err() == nil {
		start := s.now()
		s.sample(start)
		s.waitForNext(ctx, start, s.now().Sub(start))
	}
}

// waitForNext waits until the next reading is due, after one that began at start and took this
// long.
func (s *Sampler) waitForNext(ctx context.Context, start time.Time, cost time.Duration) {
	for {
		left := s.pause(cost) - s.now().Sub(start)
		if left <= 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-s.woken: // it is due sooner now
		case <-time.After(left):
		}
	}
}

// pause returns the time from the beginning of a reading of this duration to the beginning of the
// next one.
func (s *Sampler) pause(cost time.Duration) time.Duration {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.watchers > 0 {
		return min(max(everyWatched, cost*restWatched), maxEvery)
	}
	return min(max(everyUnwatched, cost*restUnwatched), maxEvery)
}

// sample reads all counters once. The lock is not held during calls of the source: it has its own
// locks.
func (s *Sampler) sample(at time.Time) {
	r := reading{Sampler: s, length: at.Sub(s.began) - s.read}
	if !s.whole {
		r.length = 0
	}
	err := s.src.EachCount(s.mayHaveCounted, r.count)
	r.release()
	if err == nil {
		err = r.readTotals()
	}
	if err != nil {
		if !s.failed {
			s.log.Error("rates are unknown: counters cannot be read", "error", err)
		}
		s.failed = true
		return // the increase is part of the next window
	}
	s.failed = false
	r.publish(at)
	s.prune()
}

// mayHaveCounted reports whether an endpoint may have counted anything since the last window.
func (s *Sampler) mayHaveCounted(id uint32, connections, tracked uint64) bool {
	e := s.endpoint(id)
	if e == nil || e.window == 0 {
		return connections > 0 || tracked > 0 // copies of other nodes' connections are tracked only
	}
	return tracked > 0 || e.active > 0 || connections != e.last[Connections]
}

// endpoint returns the row of an ID, or nil. Only the sampler may read it.
func (s *Sampler) endpoint(id uint32) *endpoint {
	if b := s.block(id); b != nil {
		return b.row(id)
	}
	return nil
}

// block returns the block with the row of an ID, or nil.
func (s *Sampler) block(id uint32) *block {
	if n := int(id / blockRows); n < len(s.blocks) {
		return s.blocks[n]
	}
	return nil
}

// prune forgets services that the data path no longer has, and services without traffic for an
// hour.
func (s *Sampler) prune() {
	if s.pruned+serviceStep > s.read {
		return
	}
	s.pruned = s.read
	var gone []*service
	for key, one := range s.services {
		if one.window == s.window {
			continue
		}
		there := false
		s.src.EachEndpointID(key, func(int, uint32) { there = true })
		if !there || s.read-one.lastActive > serviceStep*serviceSteps {
			gone = append(gone, one)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range gone {
		if one.history != nil {
			s.histories--
		}
		delete(s.services, one.key)
	}
}
