package outlier

import (
	"fmt"
	"math"
	"time"
)

// cause is why an endpoint was ejected. It determines how the endpoint returns.
type cause uint8

const (
	failsChecks   cause = iota // our own connections fail too; the endpoint returns when one succeeds
	resetsClients              // it resets clients' connections
	asymmetric                 // it accepts our own connections, but its replies to clients' SYNs never arrive here
	hangs                      // it accepts connections, and sends no data
)

// needsClients reports whether only a client's connection can show that the endpoint has recovered.
func (c cause) needsClients() bool { return c == asymmetric || c == hangs }

const (
	// trialPause is the interval at which a client's connection is sent to an endpoint that is
	// out.
	trialPause = 10 * time.Second

	// Clients' attempts without an answer are evidence if there are at least minAttempts of
	// them. To prove that they are of several clients, the client must have changed from one
	// attempt to the next at least this often; more often if no sibling's handshake proves that
	// there are clients.
	minAttempts           = 10
	minClientChanges      = 2
	minClientChangesAlone = 3
	// attemptMemory is how long the last attempt is evidence that no endpoint answers clients.
	// Attempts may be forged: without new ones, our own connections decide.
	attemptMemory = time.Minute
	minCompleted  = 5 // average number of handshakes that each sibling must complete meanwhile

	stallMemory     = 30 * time.Second // longest pause between stalled connections of a run
	minStalls       = 5                // least number of stalled connections of a run
	maxUsualRate    = 0.25             // above this usual rate, stalls are no evidence
	maxChance       = 1e-9             // a run less likely than this is not chance
	answersHalfLife = uint32(10 * time.Second / ReadInterval)
	recentRounds    = uint32(3 * time.Second / ReadInterval)
	minHistory      = 5 // least number of connections to compute an endpoint's own rate from
)

// unanswered counts clients' attempts at an endpoint since its last answer.
type unanswered struct {
	attempts, changes uint64
	begun, last       time.Time
	siblings          map[*group]uint64 // the value of group.completed at the first attempt
	completed         bool              // a handshake was completed in this round
}

// update counts the new attempts. An answer or a completed handshake resets the counts.
func (u *unanswered) update(t *target, now time.Time) {
	n := &t.delta
	if n.answered > 0 || n.completed > 0 {
		*u = unanswered{completed: n.completed > 0}
		return
	}
	u.completed = false
	if u.attempts == 0 && n.opened > 0 {
		u.begun, u.siblings = now, make(map[*group]uint64, len(t.groups))
		for _, g := range t.groups {
			u.siblings[g] = g.completed
		}
	}
	if n.opened+n.repeated > 0 {
		u.last = now
	}
	u.attempts += n.opened
	u.changes += n.clients
}

// expire resets counts of attempts that are old and no longer prove anything. They do if a sibling
// has completed a handshake since, which proves that there are clients.
func (t *target) expire(now time.Time) {
	if t.unansweredSYNs > 0 && now.Sub(t.unanswered.last) > attemptMemory {
		t.unansweredSYNs = 0
	}
	if t.attempts > 0 && now.Sub(t.unanswered.last) > attemptMemory && (t.unserved || t.isUnserving()) {
		t.unanswered = unanswered{}
	}
}

// asymmetryReason returns why an endpoint that accepts the daemon's own connections must be
// ejected: it has answered none of at least ten attempts of several clients, while its siblings
// completed handshakes. Completed handshakes cannot be forged, and a single one resets the count: a
// healthy endpoint would have completed some. "": it need not be ejected.
func (t *target) asymmetryReason(now time.Time) (reason string) {
	u := &t.unanswered
	if u.attempts < minAttempts || u.changes < minClientChanges {
		return ""
	}
	for _, g := range t.groups {
		base, known := u.siblings[g]
		siblings, completed := g.eligible-g.countOut()-1, g.completed-base
		if known && siblings > 0 && completed >= uint64(minCompleted*siblings) && 2*completed >= u.attempts {
			return fmt.Sprintf("none of %d handshakes of several clients completed in %.1f s, and %d with other endpoints; it accepts our own connections: its replies bypass this machine",
				u.attempts, now.Sub(u.begun).Seconds(), completed)
		}
	}
	return ""
}

// isUnserving reports whether the endpoint has answered none of at least ten attempts of several
// clients, and no endpoint of its services has completed a handshake meanwhile.
func (t *target) isUnserving() bool {
	u := &t.unanswered
	if u.attempts < minAttempts || u.changes < minClientChangesAlone {
		return false
	}
	for _, g := range t.groups {
		if base, known := u.siblings[g]; !known || g.completed != base {
			return false
		}
	}
	return true
}

func (t *target) unservedReason(now time.Time) string {
	return fmt.Sprintf("none of %d handshakes of several clients completed in %.1f s, and its services completed no other handshake; it accepts our own connections: its replies bypass this machine; kept in rotation",
		t.attempts, now.Sub(t.begun).Seconds())
}

// stall counts the stalled connections of a run: consecutive ones in which only the client has sent
// data.
type stall struct {
	stalls uint64 // connections of services that select an endpoint for each connection
	// Connections, and their clients, of services where the client's address determines the
	// endpoint. There, one client can stall any number of connections, so clients count.
	stalledByClient, stallingClients uint64
	last                             time.Time
	stallReason                      string // why the endpoint counts as hanging; "": it does not
	served                           bool   // the endpoint has answered in this round
}

// update counts the new stalled connections. A served one ends the run.
func (s *stall) update(n *tally, now time.Time) {
	s.served = n.served > 0
	switch {
	case n.served > 0 || s.stalls+s.stalledByClient > 0 && now.Sub(s.last) > stallMemory:
		*s = stall{served: s.served}
	case n.stalled+n.stalledByClient > 0:
		s.stalls, s.last = s.stalls+n.stalled, now
		s.stalledByClient, s.stallingClients = s.stalledByClient+n.stalledByClient, s.stallingClients+n.stallingClients
	}
}

// answers counts the sampled connections of an endpoint that were served or stalled. The counts
// have a half-life of ten seconds.
type answers struct {
	good, bad  float32
	round      uint32 // round in which the counts were last halved
	lastServed uint32 // round of the last served connection
}

func (a *answers) add(served, stalled uint64, round uint32) {
	if served+stalled == 0 {
		return
	}
	*a = a.decayed(round)
	a.good += float32(served)
	a.bad += float32(stalled)
	if served > 0 {
		a.lastServed = round
	}
}

// decayed returns the counts as they are in a later round.
func (a *answers) decayed(round uint32) answers {
	out := *a
	if n := (round - a.round) / answersHalfLife; n > 0 {
		factor := float32(math.Pow(0.5, float64(min(n, 64))))
		out.good, out.bad, out.round = a.good*factor, a.bad*factor, a.round+n*answersHalfLife
	}
	return out
}

// stallRate estimates the rate of connections that stall, with Jeffreys' prior: few connections are
// weak evidence.
func (a *answers) stallRate() float64 { return (float64(a.bad) + 0.5) / (float64(a.good+a.bad) + 1) }

// run returns the length of the run for a service, in connections or in clients, the number of its
// connections, and a description of the unit.
func (s *stall) run(g *group) (counted, all uint64, what string) {
	if g.Resets {
		return s.stalls, s.stalls, "connections in a row"
	}
	return s.stallingClients, s.stalledByClient, "clients in a row had connections"
}

// isHanging reports whether the run of stalled connections is longer than chance explains, while
// most siblings answer. It sets stallReason.
func (t *target) isHanging(round uint32) bool {
	if t.out || t.stalls+t.stallingClients < minStalls {
		return false
	}
	for _, g := range t.groups {
		stalls, all, what := t.run(g)
		own, others, ok := g.answersCompared(t, round)
		if !ok || stalls < minStalls {
			continue
		}
		usual := others.stallRate()
		own.bad = max(0, own.bad-float32(all))
		if own.good+own.bad >= minHistory {
			usual = max(usual, own.stallRate())
		}
		if usual <= maxUsualRate && math.Pow(usual, float64(stalls)) <= maxChance {
			t.stallReason = fmt.Sprintf("%d %s without an answer for 3 s; other endpoints answered %.0f of %.0f",
				stalls, what, others.good, others.good+others.bad)
			return true
		}
	}
	return false
}

// answersCompared returns the counts of an endpoint, and the sums of its siblings'. ok is false if
// most siblings have not answered recently, or there is none.
func (g *group) answersCompared(t *target, round uint32) (own, others answers, ok bool) {
	out := map[int]bool{}
	for _, m := range g.members {
		if m.out {
			out[m.rows[g]] = true
		}
	}
	judged, recent := 0, 0
	for i := range g.last {
		a := g.last[i].answers.decayed(round)
		switch {
		case i == t.rows[g]:
			own = a
			continue
		case a.good+a.bad < 0.5 || out[i]:
			continue
		}
		judged++
		if round-a.lastServed <= recentRounds && a.good > 0 {
			recent++
		}
		others.good += a.good
		others.bad += a.bad
	}
	return own, others, judged > 0 && 2*recent > judged
}

// servesAgain reports whether an endpoint that was ejected for not answering clients has answered
// one.
func (t *target) servesAgain() bool {
	return t.out && (t.cause == asymmetric && t.completed || t.cause == hangs && t.served)
}

// trial requests that a service tries the endpoint with a client's connection.
func (t *target) trial() (Action, bool) {
	for _, g := range t.groups {
		if !g.ineligible[t.at] {
			return Action{Kind: Try, At: t.at, Service: g.Key}, true
		}
	}
	return Action{}, false
}
