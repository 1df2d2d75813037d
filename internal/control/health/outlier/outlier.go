// Package outlier detects dead endpoints by the handshakes of clients
// (docs/adr/0076-passive-health.md). It only counts and decides: it reads no clock, and opens no
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
	// ReadInterval is the interval of reading counters while there are new events.
	ReadInterval = 100 * time.Millisecond
	// streakLength is the number of consecutive unsuccessful SYNs that make an endpoint suspect
	// when their answers are late.
	streakLength = 3
	// singleSYNPatience is the least time after which a single SYN without an answer makes an
	// endpoint suspect.
	singleSYNPatience = 300 * time.Millisecond
	// Answers are late after this multiple of the endpoint's usual handshake time, within these
	// bounds, or after unknownPatience if its usual time is unknown.
	patienceFactor           = 8
	minPatience, maxPatience = ReadInterval, 3 * time.Second
	unknownPatience          = 2 * ReadInterval

	suspectTimeout = 400 * time.Millisecond // timeout of the check of a suspect endpoint
	returnTimeout  = 2 * time.Second        // timeout of the check of an ejected endpoint
	resetHold      = 300 * time.Millisecond // how long a check keeps its connection open to see whether it is reset
	recheckDelay   = time.Second            // delay of the next check after a successful one

	// An endpoint is suspect if at least this rate of its connections fails, and it is this
	// much above the median of the service's other endpoints. Counts have a half-life.
	suspectRate, suspectAboveMedian = 0.5, 0.3
	minFailures                     = 3
	countHalfLife                   = 10 * time.Second

	firstBackOff, longestBackOff = 5 * time.Second, 5 * time.Minute
	backOffReset                 = 2 * time.Minute // the back-off restarts after this time in service

	// An endpoint that accepts our own connections is reported if at least this number of
	// clients' SYNs has no answer for at least this time.
	minUnansweredSYNs, minUnansweredTime = 3, 2 * time.Second
)

// Service is a service whose endpoints are compared with each other.
type Service struct {
	Key    lb.Key
	Resets bool                     // each connection that is reset or stalls counts, as clients cannot choose the endpoint
	Levels map[netip.AddrPort]uint8 // levels of backups; nil: there are none
}

// Detector tracks endpoints by address: an endpoint of several services has one state. It is not
// safe for concurrent use.
type Detector struct {
	jiffy   time.Duration
	targets map[netip.AddrPort]*target // endpoints with failures or other state
	groups  map[lb.Key]*group
	round   uint32   // number of calls of Decide
	decided []Action // results of the next Decide
}

// Kind is the kind of an action.
type Kind int

// The kinds.
const (
	// Check: connect to the endpoint, and pass the result to CheckEnded.
	Check Kind = iota
	// Eject: stop new connections to the endpoint. If it is out already, update the evidence.
	Eject
	// Return: resume new connections to the endpoint, as it no longer fails.
	Return
	// AsymmetricReply: report that the endpoint answers our own connections, but no client's
	// SYN, so its replies to clients take another path.
	AsymmetricReply
	// ReplySeen: report that clients get answers again.
	ReplySeen
	// Try: send the next new connection of a service to the endpoint.
	Try
)

// Action is a decision of the detector.
type Action struct {
	Kind     Kind
	At       netip.AddrPort // the endpoint
	Evidence string         // of Eject: the reason
	Kept     bool           // of Eject: it fails, but stays in rotation, as too few others are left
	Certain  bool           // of Eject: our own connections fail while another endpoint serves clients
	Service  lb.Key         // of Try: the service
	Timeout  time.Duration  // of Check
	Hold     time.Duration  // of Check: how long to keep the connection open to see whether it is reset
	Retry    bool           // of Check: the endpoint is out, and may have recovered
}

// New returns a Detector without services. jiffy is the unit of handshake times.
func New(jiffy time.Duration) *Detector {
	return &Detector{jiffy: jiffy, targets: map[netip.AddrPort]*target{}, groups: map[lb.Key]*group{}}
}

// Watch sets the services. It removes endpoints that are in no service any more; the next Decide
// returns ejected ones of them. It returns the keys of new and changed services, whose endpoints
// the caller must set by Observe.
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
			d.removeMissing(g, nil)
			delete(d.groups, key)
		}
	}
	return unknown
}

// Watches reports whether the last call of Watch has set a service.
func (d *Detector) Watches(key lb.Key) bool { return d.groups[key] != nil }

// Skip counts calls of Decide that the caller has skipped because there were no events.
func (d *Detector) Skip(calls int) { d.round += uint32(calls) }

// Idle reports whether Decide has nothing to do until the next event.
func (d *Detector) Idle() bool { return len(d.targets) == 0 && len(d.decided) == 0 }

// removeMissing removes a service from the endpoints that are not in its rows, and removes
// endpoints that are in no other service.
func (d *Detector) removeMissing(g *group, rows []report.HandshakeRow) {
	if len(g.members) == 0 {
		return
	}
	stay := make(map[netip.AddrPort]bool, len(rows))
	for i := range rows {
		stay[rows[i].Addr] = true
	}
	g.members = slices.DeleteFunc(g.members, func(t *target) bool {
		if stay[t.at] {
			return false
		}
		t.groups = slices.DeleteFunc(t.groups, func(o *group) bool { return o == g })
		delete(t.rows, g)
		if len(t.groups) == 0 {
			if t.out || t.kept {
				d.decided = append(d.decided, Action{Kind: Return, At: t.at})
			}
			if t.asymmetricReported {
				d.decided = append(d.decided, Action{Kind: ReplySeen, At: t.at})
			}
			delete(d.targets, t.at)
		}
		return true
	})
}

// addOut adds a service to its endpoints that are out because of other services.
func (d *Detector) addOut(g *group, rows []report.HandshakeRow) {
	for i := range rows {
		if t := d.targets[rows[i].Addr]; t != nil && (t.out || slices.Contains(t.groups, g)) {
			t.join(g, i)
		}
	}
}

// Observe counts the events at the endpoints of a service since the last call.
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
		g.updateEligible(rows)
	}
	if !same { // the rows' counts are from before
		g.last = make([]reading, len(rows))
		for i := range rows {
			g.last[i] = newReading(&rows[i])
		}
		d.removeMissing(g, rows)
		d.addOut(g, rows)
		return
	}
	if g.Levels != nil {
		g.updateCandidates(rows)
	}
	for i := range rows {
		g.last[i].idle = rows[i].Idle
		if delta, ok := g.last[i].update(&rows[i], d.round, !g.Resets); ok {
			g.completed += delta.completed
			d.record(g, rows[i].Addr, i, &delta)
		}
	}
}

// record adds the new events of an endpoint to its state. Successes of an endpoint without state
// are ignored.
func (d *Detector) record(g *group, at netip.AddrPort, row int, delta *tally) {
	t := d.targets[at]
	if t == nil {
		if !delta.hasFailures() {
			return
		}
		t = &target{at: at, rows: map[*group]int{}}
		d.targets[at] = t
	}
	t.join(g, row)
	t.delta.add(delta)
	t.lastActive, t.usualBucket = d.round, g.last[row].usualBucket
}

// Decide returns the decisions that follow from the events so far.
func (d *Detector) Decide(now time.Time) []Action {
	out := d.decided
	d.decided = nil
	d.round++
	for _, t := range d.targets {
		t.addCounts(now) // of all endpoints before the first decision, which compares them
	}
	for _, t := range d.targets {
		if a, ok := t.decide(d.clock(now)); ok {
			out = append(out, a)
		}
	}
	d.removeIdle(now)
	return out
}

// clock returns the time of a decision.
func (d *Detector) clock(now time.Time) clock { return clock{now, d.jiffy, d.round} }

// removeIdle removes endpoints that no longer need state.
func (d *Detector) removeIdle(now time.Time) {
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

// CheckEnded reports why the check of an endpoint failed; "": the endpoint accepted the connection.
// undecided: the result is no evidence about the endpoint.
func (d *Detector) CheckEnded(at netip.AddrPort, failure string, undecided bool, now time.Time) []Action {
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
		a, ok = t.handleRetry(failure, d.clock(now)), true
	case failure == "":
		a, ok = t.handleAnswer(now)
	default:
		a, ok = t.confirmFailure(failure, d.clock(now))
	}
	if !ok {
		return nil
	}
	return []Action{a}
}

// ProbeSucceeded reports that the service's own probe of an ejected endpoint succeeded. The
// endpoint returns, unless it was ejected because it resets connections or leaves them unanswered:
// a probe is no evidence about these. A kept endpoint no longer counts as failing.
func (d *Detector) ProbeSucceeded(at netip.AddrPort, now time.Time) []Action {
	t := d.targets[at]
	if t != nil && t.unserved {
		return nil
	}
	if t != nil && t.kept {
		t.clearSuspicion()
		return nil // the next Decide has the Return
	}
	if t == nil || !t.out || t.cause != failsChecks {
		return nil
	}
	return []Action{t.readmit(now)}
}
