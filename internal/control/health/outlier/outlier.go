// Package outlier detects dead endpoints by the handshakes of clients
// (docs/adr/0076-passive-health.md). It counts and decides, and does nothing itself: no clock, no
// socket.
package outlier

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

const (
	// Pace is how often counters are read while anything happens.
	Pace = 100 * time.Millisecond
	// streakLength is the number of consecutive unsuccessful SYNs that make an endpoint suspect
	// as soon as they are late.
	streakLength = 3
	// late is the time after which a single SYN makes it suspect.
	late = 300 * time.Millisecond
	// SYNs are late after this multiple of the endpoint's usual handshake time, within these
	// bounds; if that is unknown, after a guess.
	usualTimes                           = 8
	minPatience, maxPatience             = Pace, 3 * time.Second
	unknownPatience                      = 2 * Pace
	suspectAnswer, returnAnswer          = 400 * time.Millisecond, 2 * time.Second // time that a checked endpoint has to answer
	resetAnswer                          = 300 * time.Millisecond                  // how long our own connection is held to see whether it is reset
	recheckDelay                         = time.Second                             // after an answer
	window                               = 10 * time.Second                        // half-life of the counts that shares are computed from
	minFailures                          = 3
	suspectShare, suspectAboveMedian     = 0.5, 0.3 // of failures: from there on an endpoint is suspect
	firstBackOff, longestBackOff         = 5 * time.Second, 5 * time.Minute
	calm                                 = 2 * time.Minute    // after this long in service, the back-off restarts
	minUnansweredSYNs, minUnansweredTime = 3, 2 * time.Second // beyond these, SYNs that stay unanswered although it answers us are reported
)

// Service is a service whose endpoints are compared with each other.
type Service struct {
	Key    lb.Key
	Resets bool                     // all connections that are reset, or have no answer, count: clients do not choose the endpoint
	Levels map[netip.AddrPort]uint8 // of backups; nil: it has none
}

// Detector tracks endpoints by their addresses: endpoints of several services are one. It is not
// safe for concurrent use.
type Detector struct {
	jiffy   time.Duration
	targets map[netip.AddrPort]*target // endpoints with decisions to make, or state to keep
	groups  map[lb.Key]*group
	reading uint32 // number of the last Decide
	due     []Action
}

// Kind is the kind of an action.
type Kind int

// The kinds.
const (
	Check           Kind = iota // connect to the endpoint, and report by Answer
	Eject                       // stop new connections to it, for the reason in Evidence; or the reason has changed. Kept: it fails, but keeps getting connections
	Return                      // resume new connections, or it no longer fails
	AsymmetricReply             // it answers our own connections and no client's SYN: its answers to clients take another path
	ReplySeen                   // clients get answers again
	Try                         // send the next new connection of service Of to it
)

// Action is a decision of the detector.
type Action struct {
	Kind     Kind
	At       netip.AddrPort
	Evidence string
	Timeout  time.Duration // of Ask
	Of       lb.Key        // of Try
	Kept     bool          // of Eject: too few others are left, so it stays in rotation
	Certain  bool          // of Eject: our own connections fail while another endpoint serves clients
	Again    bool          // of Ask: it is out, and to be checked for recovery
	Hold     time.Duration // of Ask: how long an established connection is held, to see whether it is reset
}

// New returns a Detector without services. Times of handshakes are in jiffies.
func New(jiffy time.Duration) *Detector {
	return &Detector{jiffy: jiffy, targets: map[netip.AddrPort]*target{}, groups: map[lb.Key]*group{}}
}

// Watch sets the services. It forgets endpoints without a service; ejected ones return with the
// next Decide. It returns new and changed services: the caller must set their endpoints by Observe.
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
			d.leave(g, nil)
			delete(d.groups, key)
		}
	}
	return unknown
}

// Watches reports whether Watch has been called with the service.
func (d *Detector) Watches(key lb.Key) bool { return d.groups[key] != nil }

// Slept counts calls of Decide that were skipped because nothing had happened.
func (d *Detector) Slept(calls int) { d.reading += uint32(calls) }

// Idle reports whether there is nothing to decide before the next observation.
func (d *Detector) Idle() bool { return len(d.targets) == 0 && len(d.due) == 0 }

// leave removes a service from the endpoints that are not in its rows, and forgets endpoints
// without another service.
func (d *Detector) leave(g *group, rows []report.HandshakeRow) {
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

// join includes endpoints that are out for other services.
func (d *Detector) join(g *group, rows []report.HandshakeRow) {
	for i := range rows {
		if t := d.targets[rows[i].At]; t != nil && (t.out || slices.Contains(t.groups, g)) {
			t.join(g, i)
		}
	}
}

// Observe counts the events with the endpoints of a service since the last call.
func (d *Detector) Observe(key lb.Key, rows []report.HandshakeRow) {
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
	if !same { // earlier counts are not new
		g.last = make([]reading, len(rows))
		for i := range rows {
			g.last[i] = newReading(&rows[i])
		}
		d.leave(g, rows)
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

// emit counts a new result of an endpoint. Success is ignored for endpoints without a record.
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

// Decide returns the decisions that follow from the observations.
func (d *Detector) Decide(now time.Time) []Action {
	out := d.due
	d.due = nil
	d.reading++
	for _, t := range d.targets {
		t.addCounts(now) // of all first: shares are compared
	}
	for _, t := range d.targets {
		if a, ok := t.decide(d.at(now)); ok {
			out = append(out, a)
		}
	}
	d.forget(now)
	return out
}

// at returns the moment of a decision.
func (d *Detector) at(now time.Time) moment { return moment{now, d.jiffy, d.reading} }

// forget removes endpoints without state.
func (d *Detector) forget(now time.Time) {
	of := map[*group]bool{}
	for at, t := range d.targets {
		if !t.isIdle(now) {
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

// Answer reports how an endpoint has answered a check; "": well. undecided: it could not be
// checked.
func (d *Detector) Answer(at netip.AddrPort, failure string, undecided bool, now time.Time) []Action {
	t := d.targets[at]
	if t == nil || !t.pending {
		return nil
	}
	t.pending, t.nextCheck = false, now.Add(recheckDelay)
	var (
		a  Action
		ok bool
	)
	switch {
	case undecided:
	case t.out:
		a, ok = t.handleRetry(failure, d.at(now)), true
	case failure == "":
		a, ok = t.handleAnswer(now)
	default:
		a, ok = t.confirmFailure(failure, d.at(now))
	}
	if !ok {
		return nil
	}
	return []Action{a}
}

// ProbeSucceeded reports that the service's own probe has found an ejected endpoint healthy. The
// endpoint returns, unless it was ejected because it reset connections or left them unanswered: a
// probe is no evidence about these. A kept endpoint no longer counts as failing.
func (d *Detector) ProbeSucceeded(at netip.AddrPort, now time.Time) []Action {
	t := d.targets[at]
	if t != nil && t.unserved {
		return nil
	}
	if t != nil && t.kept {
		t.clearSuspicion()
		return nil // the next Decide returns it
	}
	if t == nil || !t.out || t.cause != refusesUs {
		return nil
	}
	return []Action{t.readmit(now)}
}
