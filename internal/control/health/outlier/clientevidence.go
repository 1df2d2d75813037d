package outlier

import (
	"fmt"
	"math"
	"time"
)

// cause is why an endpoint was ejected; it determines how the endpoint returns.
type cause uint8

const (
	refusesUs     cause = iota // our own connections fail, too: it returns when one succeeds
	resetsClients              // it resets connections of clients
	answersNobody              // its answers to clients' SYNs are never seen, but it accepts our own connections
	neverAnswers               // it accepts connections, and its program sends nothing
)

// needsClients reports whether only a client's connection shows that the endpoint serves again.
func (c cause) needsClients() bool { return c == answersNobody || c == neverAnswers }

const (
	// trialPause is how often one connection of a client tries an endpoint that is out.
	trialPause = 10 * time.Second

	minAttempts           = 10 // of clients without an answer, before they count as evidence
	minClientChanges      = 2  // times that the next attempt came from another client: proof of several clients
	minClientChangesAlone = 3  // the same if no sibling's handshake proves that clients exist
	// attemptMemory is how long the last attempt counts as evidence that no endpoint answers
	// clients. The clients may be forged: without new attempts, our own connections decide.
	attemptMemory = time.Minute
	minCompleted  = 5 // average number of handshakes that a sibling completes meanwhile

	stallMemory     = 30 * time.Second // connections that stall count if they are no further apart
	minStalls       = 5
	maxUsualShare   = 0.25 // share of unanswered connections that is too common to judge by
	maxChance       = 1e-9 // a run of stalls less likely than this is not chance
	answersHalfLife = uint32(10 * time.Second / Pace)
	recentReadings  = uint32(3 * time.Second / Pace)
	minHistory      = 5
)

// unanswered counts clients' attempts at an endpoint since it answered one.
type unanswered struct {
	attempts, changes uint64
	begun, last       time.Time
	siblings          map[*group]uint64 // the value of group.completed at the first attempt
	completed         bool              // a handshake completed since the last reading
}

// update counts the new attempts. An answer or a completed handshake resets the count.
func (u *unanswered) update(t *target, now time.Time) {
	n := &t.news
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

// expire forgets attempts that no longer prove anything: all of them are old, and no sibling has
// completed a handshake since. A sibling's handshake would prove that there are clients.
func (t *target) expire(now time.Time) {
	if t.unansweredSYNs > 0 && now.Sub(t.unanswered.last) > attemptMemory {
		t.unansweredSYNs = 0
	}
	if t.attempts > 0 && now.Sub(t.unanswered.last) > attemptMemory && (t.unserved || t.leavesAllUnserved()) {
		t.unanswered = unanswered{}
	}
}

// asymmetryReason returns why an endpoint that accepts the daemon's own connections is useless to
// clients, or "": it has answered none of at least ten attempts of several clients, while its
// siblings completed handshakes. Completed handshakes cannot be forged: a healthy endpoint would
// have had its own, and a single one resets the count.
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

// leavesAllUnserved reports whether the endpoint has answered none of at least ten attempts of
// several clients, and its services completed no handshake with anybody meanwhile.
func (t *target) leavesAllUnserved() bool {
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

// stall counts consecutive connections in which only the client has sent data.
type stall struct {
	stalls uint64 // connections of services that choose the endpoint for each connection
	// connections, and their clients, of services where the client's address determines the
	// endpoint: one client has all of its connections there, so clients are counted
	chosen, chosenClients uint64
	last                  time.Time
	stallReason           string // why the endpoint counts as hanging; "": it does not
	served                bool   // an endpoint's answer was seen since the last reading
}

// update counts the new stalled connections. A served one resets the count.
func (s *stall) update(n *tally, now time.Time) {
	s.served = n.served > 0
	switch {
	case n.served > 0 || s.stalls+s.chosen > 0 && now.Sub(s.last) > stallMemory:
		*s = stall{served: s.served}
	case n.stalled+n.chosen > 0:
		s.stalls, s.last = s.stalls+n.stalled, now
		s.chosen, s.chosenClients = s.chosen+n.chosen, s.chosenClients+n.chosenClients
	}
}

// answers counts recent sampled connections of an endpoint, served and not served. Counts older
// than ten seconds count half.
type answers struct {
	good, bad  float32
	at         uint32 // number of the reading
	lastServed uint32
}

func (a *answers) add(served, stalled uint64, number uint32) {
	if served+stalled == 0 {
		return
	}
	*a = a.decayed(number)
	a.good += float32(served)
	a.bad += float32(stalled)
	if served > 0 {
		a.lastServed = number
	}
}

// decayed returns what the counts are worth at a later reading.
func (a *answers) decayed(number uint32) answers {
	out := *a
	if n := (number - a.at) / answersHalfLife; n > 0 {
		factor := float32(math.Pow(0.5, float64(min(n, 64))))
		out.good, out.bad, out.at = a.good*factor, a.bad*factor, a.at+n*answersHalfLife
	}
	return out
}

// stallShare estimates the share of connections that stall (Jeffreys' prior: few connections say
// little).
func (a *answers) stallShare() float64 { return (float64(a.bad) + 0.5) / (float64(a.good+a.bad) + 1) }

// run returns how many consecutive connections or clients of a service stalled, how many stalled
// connections that is, and a description of what was counted.
func (s *stall) run(g *group) (counted, all uint64, what string) {
	if g.Resets {
		return s.stalls, s.stalls, "connections in a row"
	}
	return s.chosenClients, s.chosen, "clients in a row had connections"
}

// isHanging reports whether more consecutive connections stalled than chance explains, while most
// siblings answer.
func (t *target) isHanging(number uint32) bool {
	if t.out || t.stalls+t.chosenClients < minStalls {
		return false
	}
	for _, g := range t.groups {
		stalls, all, what := t.run(g)
		own, others, ok := g.answersCompared(t, number)
		if !ok || stalls < minStalls {
			continue
		}
		usual := others.stallShare()
		own.bad = max(0, own.bad-float32(all))
		if own.good+own.bad >= minHistory {
			usual = max(usual, own.stallShare())
		}
		if usual <= maxUsualShare && math.Pow(usual, float64(stalls)) <= maxChance {
			t.stallReason = fmt.Sprintf("%d %s without an answer for 3 s; other endpoints answered %.0f of %.0f",
				stalls, what, others.good, others.good+others.bad)
			return true
		}
	}
	return false
}

// answersCompared returns the answers of an endpoint and of its siblings; false: most siblings have
// not answered recently, or there is none.
func (g *group) answersCompared(t *target, number uint32) (own, others answers, ok bool) {
	out := map[int]bool{}
	for _, m := range g.members {
		if m.out {
			out[m.rows[g]] = true
		}
	}
	judged, lately := 0, 0
	for i := range g.last {
		a := g.last[i].answers.decayed(number)
		switch {
		case i == t.rows[g]:
			own = a
			continue
		case a.good+a.bad < 0.5 || out[i]:
			continue
		}
		judged++
		if number-a.lastServed <= recentReadings && a.good > 0 {
			lately++
		}
		others.good += a.good
		others.bad += a.bad
	}
	return own, others, judged > 0 && 2*lately > judged
}

// servesAgain reports whether an endpoint that was ejected for not answering has answered a client.
func (t *target) servesAgain() bool {
	return t.out && (t.cause == answersNobody && t.completed || t.cause == neverAnswers && t.served)
}

// trial requests a trial of the endpoint with one client's connection.
func (t *target) trial() (Action, bool) {
	for _, g := range t.groups {
		if !g.ineligible[t.at] {
			return Action{Kind: Try, At: t.at, Of: g.Key}, true
		}
	}
	return Action{}, false
}
