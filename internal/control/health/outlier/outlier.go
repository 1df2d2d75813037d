// Package outlier detects dead endpoints by the handshakes of clients
// (docs/adr/0034-passive-health.md). It counts and decides, and does nothing itself: no clock, no
// socket.
package outlier

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/lb"
)

const (
	// Pace is how often counters are read while anything happens.
	Pace = 100 * time.Millisecond
	// streakLength is how many SYNs in a row without success make an endpoint suspect as soon as
	// they are late.
	streakLength = 3
	// late is after which time one SYN does.
	late = 300 * time.Millisecond
	// SYNs are not late before so many times the endpoint's usual handshake, within these bounds;
	// without any, a guess.
	usualTimes                           = 8
	leastPatience, mostPatience          = Pace, 3 * time.Second
	unknownPatience                      = 2 * Pace
	suspectAnswer, returnAnswer          = 400 * time.Millisecond, 2 * time.Second // how long an endpoint that is asked has for its answer
	resetAnswer                          = 300 * time.Millisecond                  // how long a connection of our own is held to see whether it is reset
	askAgain                             = time.Second                             // after an answer
	window                               = 10 * time.Second                        // after which what shares are made of counts half
	leastFailures                        = 3
	mostShare, mostAboveMedian           = 0.5, 0.3 // of failures: from there on an endpoint is suspect
	firstBackOff, longestBackOff         = 5 * time.Second, 5 * time.Minute
	calm                                 = 2 * time.Minute    // after so long in service, the back-off begins anew
	minUnansweredSYNs, minUnansweredTime = 3, 2 * time.Second // unanswered, while it answers us: from there on it is reported
)

// Service is one whose endpoints are compared with each other.
type Service struct {
	Key    lb.Key
	Resets bool                     // all connections that are reset, or have no answer, count: clients do not choose the endpoint
	Levels map[netip.AddrPort]uint8 // of backups; nil: it has none
}

// Detector has endpoints by their addresses: those of several services are one. Its methods belong
// to one goroutine.
type Detector struct {
	jiffy   time.Duration
	targets map[netip.AddrPort]*target // of which something is to be decided, or remembered
	groups  map[lb.Key]*group
	reading uint32 // number of the last Decide
	due     []Action
}

// Kind is what is to be done.
type Kind int

// The kinds.
const (
	Ask             Kind = iota // connect to the endpoint, and report by Answer
	Eject                       // it gets no new connections, for the reason in Evidence; or that is the reason by now. Kept: it fails, and goes on to get some
	Return                      // it gets some again, or fails no longer
	AsymmetricReply             // it answers our own connections and no client's SYN: its answers to clients take another path
	ReplySeen                   // clients have answers again
	Try                         // have the next new connection of service Of go to it
)

// Action is what follows.
type Action struct {
	Kind     Kind
	At       netip.AddrPort
	Evidence string
	Timeout  time.Duration // of Ask
	Of       lb.Key        // of Try
	Kept     bool          // of Eject: too few others are left, so it stays in rotation
	Again    bool          // of Ask: it is out, and to be asked whether it is well again
	Hold     time.Duration // of Ask: how long a connection that comes about is held, to see whether it is reset
}

// New makes one. Times of handshakes are in jiffies.
func New(jiffy time.Duration) *Detector {
	return &Detector{jiffy: jiffy, targets: map[netip.AddrPort]*target{}, groups: map[lb.Key]*group{}}
}

// Watch says which services there are. Endpoints that no service has any more are forgotten; those
// of them that were out return, with the next Decide. Which endpoints a service has, Observe
// learns: it is to be called for those that Watch returns, which are new or others than they were.
func (d *Detector) Watch(services []Service) (unknown []lb.Key) {
	for _, g := range d.groups {
		g.seen = false
	}
	for _, s := range services {
		g := d.groups[s.Key]
		if g == nil {
			g = &group{}
			d.groups[s.Key] = g
			unknown = append(unknown, s.Key)
		} else if !maps.Equal(g.Levels, s.Levels) {
			unknown = append(unknown, s.Key)
		}
		g.Service, g.seen = s, true
	}
	for key, g := range d.groups {
		if !g.seen {
			d.part(g, nil)
			delete(d.groups, key)
		}
	}
	return unknown
}

// Watches reports whether a service is among those that there are.
func (d *Detector) Watches(key lb.Key) bool { return d.groups[key] != nil }

// Slept has so many calls of Decide count that were left out, as nothing had happened.
func (d *Detector) Slept(calls int) { d.reading += uint32(calls) }

// Idle reports whether nothing is to be decided before the next observation.
func (d *Detector) Idle() bool { return len(d.targets) == 0 && len(d.due) == 0 }

// part takes a service from the endpoints that are not in its rows. Those that have no other are
// forgotten.
func (d *Detector) part(g *group, rows []lb.HandshakeRow) {
	if len(g.members) == 0 {
		return
	}
	stay := make(map[netip.AddrPort]bool, len(rows))
	for i := range rows {
		stay[rows[i].At] = true
	}
	g.members = slices.DeleteFunc(g.members, func(t *target) bool {
		if stay[t.at] {
			return false
		}
		t.groups = slices.DeleteFunc(t.groups, func(o *group) bool { return o == g })
		delete(t.rows, g)
		if len(t.groups) == 0 {
			if t.out || t.kept {
				d.due = append(d.due, Action{Kind: Return, At: t.at})
			}
			if t.asymmetricReported {
				d.due = append(d.due, Action{Kind: ReplySeen, At: t.at})
			}
			delete(d.targets, t.at)
		}
		return true
	})
}

// join has those that are out for other services count here, too.
func (d *Detector) join(g *group, rows []lb.HandshakeRow) {
	for i := range rows {
		if t := d.targets[rows[i].At]; t != nil && (t.out || slices.Contains(t.groups, g)) {
			t.join(g, i)
		}
	}
}

// Observe counts what has happened with the endpoints of a service since the last call.
func (d *Detector) Observe(key lb.Key, rows []lb.HandshakeRow) {
	g := d.groups[key]
	if g == nil {
		return
	}
	same, idle := len(g.last) == len(rows), false
	for i := range rows {
		same = same && g.last[i].id == rows[i].ID
		idle = idle || same && g.last[i].idle != rows[i].Idle
	}
	if !same || idle {
		g.count(rows)
	}
	if !same { // what they have counted so far is not news
		g.last = make([]reading, len(rows))
		for i := range rows {
			g.last[i] = newReading(&rows[i])
		}
		d.part(g, rows)
		d.join(g, rows)
		return
	}
	if g.Levels != nil {
		g.place(rows)
	}
	for i := range rows {
		g.last[i].idle = rows[i].Idle
		if news, ok := g.last[i].update(&rows[i], d.reading, !g.Resets); ok {
			g.completed += news.completed
			d.emit(g, rows[i].At, i, &news)
		}
	}
}

// emit counts news of an endpoint. Success is ignored for endpoints without a record.
func (d *Detector) emit(g *group, at netip.AddrPort, row int, news *tally) {
	t := d.targets[at]
	if t == nil {
		if !news.hasFailures() {
			return
		}
		t = &target{at: at, rows: map[*group]int{}}
		d.targets[at] = t
	}
	t.join(g, row)
	t.news.add(news)
	t.active, t.usual = d.reading, g.last[row].usual
}

// Decide says what follows from all that was observed.
func (d *Detector) Decide(now time.Time) []Action {
	out := d.due
	d.due = nil
	d.reading++
	for _, t := range d.targets {
		t.take(now) // of all first: shares are compared
	}
	for _, t := range d.targets {
		if a, ok := t.decide(now, d.jiffy, d.reading); ok {
			out = append(out, a)
		}
	}
	d.forget(now)
	return out
}

// forget forgets endpoints of which there is nothing to remember.
func (d *Detector) forget(now time.Time) {
	of := map[*group]bool{}
	for at, t := range d.targets {
		if !t.forgettable(now) {
			continue
		}
		delete(d.targets, at)
		for _, g := range t.groups {
			of[g] = true
		}
		t.groups = nil
	}
	for g := range of {
		g.members = slices.DeleteFunc(g.members, func(t *target) bool { return len(t.groups) == 0 })
	}
}

// Answer says how an endpoint that was to be asked has answered; nil: well. undecided: it could not
// be asked.
func (d *Detector) Answer(at netip.AddrPort, failure string, undecided bool, now time.Time) []Action {
	t := d.targets[at]
	if t == nil || !t.pending {
		return nil
	}
	t.pending, t.nextAsk = false, now.Add(askAgain)
	var (
		a  Action
		ok bool
	)
	switch {
	case undecided:
	case t.out:
		a, ok = t.handleRetry(failure, now), true
	case failure == "":
		a, ok = t.handleAnswer(now)
	default:
		a, ok = t.confirmFailure(failure, now)
	}
	if !ok {
		return nil
	}
	return []Action{a}
}

// Well says that the service's own probe has found an endpoint well that is out. It comes back,
// unless it was for connections that it reset, or left without an answer, of which that probe says
// nothing. One that was kept fails no longer.
func (d *Detector) Well(at netip.AddrPort, now time.Time) []Action {
	t := d.targets[at]
	if t != nil && t.unserved {
		return nil
	}
	if t != nil && t.kept {
		t.clearSuspicion()
		return nil // the next Decide says so
	}
	if t == nil || !t.out || t.cause != refusesUs {
		return nil
	}
	return []Action{t.readmit(now)}
}
