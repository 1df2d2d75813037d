package rates

import (
	"math"
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// reading is one pass over all counters.
type reading struct {
	*Sampler
	length  time.Duration // since the previous one; 0: the first one
	held    *block        // the locked block; rows come in the order of IDs, so it stays locked for several rows
	current *service      // the service counted last

	totals     Totals
	handshakes times // of all services
	dropped    map[string]uint64
	challenged uint64
}

// count adds the counters of an endpoint.
func (r *reading) count(c *report.EndpointCount) {
	b := r.block(c.ID)
	if b == nil {
		r.release()
		b = r.makeBlock(c.ID)
	}
	if b != r.held {
		r.release()
		r.held = b
		b.mu.Lock()
	}
	e := b.row(c.ID)
	added, handshakes := e.read(identify(r.seed, c), c, !r.whole)
	if r.length > 0 {
		e.recent.follow(&added)
	}
	e.rates, e.active, e.window = added.perSecondOver(r.length), uint32(min(c.Active, math.MaxUint32)), r.window+1
	if r.current == nil || r.current.key != c.Service {
		r.current = r.service(c.Service)
	}
	r.current.added.add(&added)
	r.current.handshakes.add(&handshakes)
	r.handshakes.add(&handshakes)
	r.current.active += c.Active
	r.current.touched = true
}

func (r *reading) release() {
	if r.held != nil {
		r.held.mu.Unlock()
		r.held = nil
	}
}

func (r *reading) makeBlock(id uint32) *block {
	r.mu.Lock()
	defer r.mu.Unlock()
	for int(id/blockRows) >= len(r.blocks) {
		r.blocks = append(r.blocks, nil)
	}
	b := &block{}
	r.blocks[id/blockRows] = b
	return b
}

// service returns the state of a service, making it if needed.
func (r *reading) service(key lb.Key) *service {
	one := r.services[key]
	if one == nil {
		r.release() // readers also hold only one lock at a time
		one = &service{key: key}
		r.mu.Lock()
		r.services[key] = one
		r.mu.Unlock()
	}
	return one
}

// readTotals reads the global counters, and compares them with the previous reading.
func (r *reading) readTotals() error {
	t := &r.totals
	t.Tracked, t.Limit = r.src.Occupancy()
	fullness, err := r.src.Fullness()
	if err != nil {
		return err
	}
	t.HalfOpen = uint64(fullness.HalfOpenTCP + fullness.HalfOpenOthers)
	if r.challenged, _, err = r.src.Challenges(); err != nil {
		return err
	}
	t.Challenged = r.rate(r.challenges, r.challenged)
	r.dropped = r.src.Drops()
	t.Drops = make(map[string]Drop, len(r.dropped))
	for reason, n := range r.dropped {
		d := Drop{Packets: n, Rate: r.rate(r.drops[reason], n)}
		t.Drops[reason] = d
		t.Dropped += d.Rate
	}
	return r.readRefused()
}

// readRefused reads the packets refused by services. The first reading finds counts of earlier
// processes.
func (r *reading) readRefused() error {
	refused := map[lb.Key]uint64{}
	if err := r.src.EachRefused(func(key lb.Key, packets uint64) { refused[key] += packets }); err != nil {
		return err
	}
	for key, packets := range refused {
		before := r.Sampler.refused[key]
		if !r.whole || packets <= before { // a service that was created again counts from 0
			continue
		}
		one := r.service(key)
		one.refused, one.touched = one.refused+packets-before, true
	}
	r.Sampler.refused = refused
	return nil
}

// rate returns the rate of a counter. A counter that decreased was reset, and its rate is unknown.
func (r *reading) rate(before, now uint64) float32 {
	if r.length <= 0 || now < before {
		return 0
	}
	return perSecond(now-before, r.length)
}

// publish makes the reading the last window, and wakes the waiting readers.
func (r *reading) publish(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := r.Sampler.read
	r.window++
	r.last = Window{End: at, Length: r.length}
	r.Sampler.read, r.whole = at.Sub(r.began), true
	for _, one := range r.services {
		if one.touched {
			r.publishService(one, from)
			r.totals.Rates.Add(&one.load.Rates)
			r.totals.Refused += one.load.Refused
		}
	}
	r.totals.Times = r.handshakes.summary(r.src.Jiffy())
	r.Sampler.totals, r.drops, r.challenges = r.totals, r.dropped, r.challenged
	if r.length > 0 {
		r.remember(from)
	}
	close(r.next)
	r.next = make(chan struct{})
}

// publishService publishes the counts of a service as its load.
func (r *reading) publishService(one *service, from time.Duration) {
	one.times.add(&one.handshakes)
	jiffy := r.src.Jiffy()
	one.load = Load{Rates: one.added.perSecondOver(r.length), Active: one.active, Times: one.times.times(jiffy), Now: one.handshakes.summary(jiffy)}
	if r.length > 0 {
		one.load.Refused = perSecond(one.refused, r.length)
	}
	one.window = r.window
	if one.added != (counts{}) || one.active > 0 || one.refused > 0 {
		one.lastActive = r.Sampler.read
		if one.history == nil && r.histories < maxHistories {
			one.history, one.timeline = newRing(serviceStep, serviceSteps, serviceWidth), newTimeline(serviceStep, serviceSteps)
			r.histories++
		}
	}
	if one.history != nil && r.length > 0 {
		one.history.add(from, r.Sampler.read, append(one.load.Rates[:], float32(one.active), one.load.Refused)...)
		one.timeline.add(r.Sampler.read, &one.handshakes)
	}
	one.added, one.handshakes, one.active, one.refused, one.touched = counts{}, times{}, 0, 0, false
}

// Additional values in the history of the totals and of a service.
const (
	trackedColumn = int(quantities) + iota
	halfOpenColumn
	droppedColumn
	challengedColumn
	totalsRefusedColumn
	totalsWidth
)

const (
	activeColumn = int(quantities) + iota
	refusedColumn
	serviceWidth
)

// remember adds the totals to the history.
func (r *reading) remember(from time.Duration) {
	t := &r.totals
	r.timeline.add(r.Sampler.read, &r.handshakes)
	r.history.add(from, r.Sampler.read, append(t.Rates[:], float32(t.Tracked), float32(t.HalfOpen), t.Dropped, t.Challenged, t.Refused)...)
	for reason, d := range t.Drops {
		if d.Rate > 0 && r.reasons[reason] == nil {
			r.reasons[reason] = newRing(totalsStep, totalsSteps, 1)
		}
		if kept := r.reasons[reason]; kept != nil {
			kept.add(from, r.Sampler.read, d.Rate)
		}
	}
}
