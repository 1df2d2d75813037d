package outlier

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/lb/report"
)

// target is an endpoint of one or more services.
type target struct {
	at     netip.AddrPort
	groups []*group       // services that contain it
	rows   map[*group]int // and the index of its row in each

	delta       tally     // events since the last Decide
	recent      tally     // events whose weight halves every countHalfLife
	halvedAt    time.Time // when the weight was last halved
	lastActive  uint32    // round of the last events
	usualBucket int8      // the bucket that most handshakes are in

	streak  uint64    // SYNs without an answer since the last answer
	refused uint64    // refused SYNs among them
	since   time.Time // when the streak began

	pending      bool // a check is running
	othersServed bool // another endpoint served clients when that check began
	nextCheck    time.Time

	unansweredSYNs     uint64 // clients' SYNs without an answer, while the endpoint accepts our own connections
	unansweredSince    time.Time
	asymmetricReported bool

	unanswered
	stall

	heldReason string // why it should be ejected, but cannot be: too many others are out; "": it should not be
	kept       bool   // reported as failing, but stays in rotation
	unserved   bool   // kept because none of its clients is served, though it accepts our own connections

	out          bool // ejected
	cause        cause
	certain      bool // it fails while another endpoint serves clients
	reason       string
	tries        int       // failed checks since it is out
	backOffs     int       // number of back-offs, each twice as long
	until        time.Time // end of the back-off
	readmittedAt time.Time
}

// clock is the time of a decision.
type clock struct {
	now   time.Time
	jiffy time.Duration // unit of handshake times
	round uint32        // number of calls of Decide
}

func (t *target) join(g *group, row int) {
	if !slices.Contains(t.groups, g) {
		t.groups, g.members = append(t.groups, g), append(g.members, t)
	}
	t.rows[g] = row
}

// tally counts events at an endpoint. Its members are those of report.HandshakeRow.
type tally struct {
	opened, answered, repeated, refused, unreachable, reset uint64
	completed, clients, served, stalled                     uint64
	// Stalled connections, and their clients, of services where the client's address determines
	// the endpoint. stalled does not include them.
	stalledByClient, stallingClients uint64
}

func (a *tally) add(b *tally) {
	a.opened += b.opened
	a.answered += b.answered
	a.repeated += b.repeated
	a.refused += b.refused
	a.unreachable += b.unreachable
	a.reset += b.reset
	a.completed += b.completed
	a.clients += b.clients
	a.served += b.served
	a.stalled += b.stalled
	a.stalledByClient += b.stalledByClient
	a.stallingClients += b.stallingClients
}

// hasFailures reports whether there were events that may be failures.
func (a *tally) hasFailures() bool {
	return a.opened > a.answered || a.stalled+a.stalledByClient > 0 || a.repeated+a.refused+a.unreachable+a.reset > 0
}

func (a *tally) halve() {
	for _, n := range []*uint64{&a.opened, &a.answered, &a.repeated, &a.refused, &a.unreachable, &a.reset} {
		*n /= 2
	}
}

// failures returns the number of failures. A repeated SYN is one: its connection was not
// established within a second.
func (a *tally) failures() uint64 {
	return min(a.opened, a.repeated+a.refused+a.unreachable+a.reset)
}

func (a *tally) failureRate() float64 {
	if a.opened == 0 {
		return 0
	}
	return float64(a.failures()) / float64(a.opened)
}

// patience returns the time after which an answer is late.
func (t *target) patience(jiffy time.Duration) time.Duration {
	if t.usualBucket == unknownBucket {
		return unknownPatience
	}
	return min(max(patienceFactor*report.HandshakeBound(int(t.usualBucket), jiffy), minPatience), maxPatience)
}

// isIdle reports whether the endpoint needs no state: there is nothing to decide before its next
// event.
func (t *target) isIdle(now time.Time) bool {
	return t.streak == 0 && t.stalls+t.stalledByClient == 0 && !t.out && !t.kept && !t.pending && t.recent.failures() == 0 && (t.backOffs == 0 || t.backOffEnded(now)) &&
		(t.unansweredSYNs == 0 || !t.asymmetricReported && now.Sub(t.unansweredSince) > 8*countHalfLife)
}

// backOffEnded reports whether the endpoint has been in service for long enough that the next
// back-off is a short one again.
func (t *target) backOffEnded(now time.Time) bool {
	return now.Sub(t.readmittedAt) > max(backOffReset, 2*backOff(t.backOffs))
}

// addCounts evaluates the events since the last Decide.
func (t *target) addCounts(now time.Time) {
	t.age(now)
	t.recent.add(&t.delta)
	t.updateStreak(now)
	t.expire(now)
	t.delta = tally{}
}

// decide returns the next action.
func (t *target) decide(c clock) (a Action, ok bool) {
	now := c.now
	switch {
	case t.asymmetricReported && t.unansweredSYNs == 0:
		t.asymmetricReported = false
		return Action{Kind: ReplySeen, At: t.at}, true
	case t.kept && t.heldReason == "" && !(t.unserved && t.isUnserving()):
		t.kept, t.unserved = false, false
		return Action{Kind: Return, At: t.at}, true
	case t.servesAgain():
		return t.readmit(now), true
	case t.pending:
		return a, false
	case t.isHanging(c.round):
		return t.eject(t.stallReason, hangs, now)
	case t.heldReason != "" && t.canTakeOut():
		t.certain = false
		return t.markOut(t.heldReason, failsChecks, now), true
	case now.Before(t.nextCheck):
		return a, false
	case t.out:
		return t.retry(c)
	case t.heldReason != "", t.isUnresponsive(c), t.failsTooOften(c.round, func(r *tally) uint64 { return r.repeated + r.refused + r.unreachable }):
		t.pending, t.othersServed = true, t.othersServe(c)
		return Action{Kind: Check, At: t.at, Timeout: max(suspectTimeout, t.patience(c.jiffy))}, true
	case t.failsTooOften(c.round, func(r *tally) uint64 { return r.reset }):
		return t.eject(fmt.Sprintf("%d of %d client connections reset before an answer", t.recent.reset, t.recent.opened), resetsClients, now)
	}
	return a, false
}

// age halves the weight of old events.
func (t *target) age(now time.Time) {
	if t.halvedAt.IsZero() || now.Sub(t.halvedAt) > 8*countHalfLife {
		t.recent, t.halvedAt = tally{}, now
	}
	for now.Sub(t.halvedAt) >= countHalfLife {
		t.recent.halve()
		t.halvedAt = t.halvedAt.Add(countHalfLife)
	}
}

// updateStreak counts the SYNs without an answer since the last answer. SYNs that were read
// together with an answer may have arrived after it.
func (t *target) updateStreak(now time.Time) {
	n := &t.delta
	t.unanswered.update(t, now)
	t.stall.update(n, now)
	bad := n.refused + n.unreachable
	if n.answered > 0 {
		t.heldReason, t.unansweredSYNs = "", 0
		t.streak, t.refused, t.since = n.opened-min(n.opened, n.answered+bad), 0, now
		return
	}
	if t.streak == 0 {
		t.since = now.Add(-ReadInterval)
	}
	t.streak += n.opened + n.repeated
	t.refused += bad
}

// isUnresponsive reports whether SYNs have been unsuccessful for so long that the endpoint must be
// checked.
func (t *target) isUnresponsive(c clock) bool {
	took, patience := c.now.Sub(t.since), t.patience(c.jiffy)
	return t.streak > 0 && (t.refused >= streakLength || t.streak >= streakLength && took >= patience || took >= max(singleSYNPatience, patience))
}

// failsNow reports whether the last events of an endpoint are failures.
func (t *target) failsNow(c clock) bool {
	return t.refused > 0 || t.streak > 0 && c.now.Sub(t.since) > ReadInterval
}

// failsTooOften reports whether the endpoint's rate of one kind of failure is high, and its failure
// rate well above that of most other endpoints of a service.
func (t *target) failsTooOften(round uint32, kind func(*tally) uint64) bool {
	r := &t.recent
	if n := kind(r); n < minFailures || float64(n) < suspectRate*float64(r.opened) {
		return false
	}
	return slices.ContainsFunc(t.groups, func(g *group) bool {
		median, ok := g.medianWithout(t, round)
		return ok && r.failureRate() >= median+suspectAboveMedian
	})
}

// handleAnswer handles the successful check of a suspect. The endpoint stays in rotation, unless it
// leaves only clients' SYNs unanswered. If that is not certain, it is only reported.
func (t *target) handleAnswer(now time.Time) (a Action, ok bool) {
	if t.streak > 0 && t.refused == 0 && t.heldReason == "" { // otherwise, the endpoint was dead when the SYNs arrived
		if t.unansweredSYNs == 0 {
			t.unansweredSince = t.since
		}
		t.unansweredSYNs += t.streak
	}
	if t.heldReason != "" {
		t.unanswered = unanswered{}
	}
	t.clearSuspicion()
	if reason := t.asymmetryReason(now); reason != "" {
		return t.eject(reason, asymmetric, now)
	}
	long := t.unansweredSYNs >= minUnansweredSYNs && now.Sub(t.unansweredSince) >= minUnansweredTime
	if long && !t.kept && t.isUnserving() {
		t.kept, t.unserved = true, true
		return Action{Kind: Eject, At: t.at, Evidence: t.unservedReason(now), Kept: true}, true
	}
	if t.asymmetricReported || !long {
		return a, false
	}
	t.asymmetricReported = true
	return Action{Kind: AsymmetricReply, At: t.at}, true
}

// clearSuspicion resets the counts that make an endpoint suspect.
func (t *target) clearSuspicion() {
	t.streak, t.refused, t.heldReason = 0, 0, ""
	t.recent = tally{}
}

// confirmFailure ejects a suspect whose check has failed, unless clients had success meanwhile.
//
// If several endpoints fail together, half of them stay: the fault may be on this machine, or the
// load of ejected endpoints may overload the remaining ones. If another endpoint serves clients,
// both before and after the check, neither is likely, and all failing endpoints are ejected.
func (t *target) confirmFailure(failure string, c clock) (Action, bool) {
	n, what := t.streak, "without an answer"
	took := c.now.Sub(t.since)
	switch r := &t.recent; {
	case t.streak > 0 && t.refused > 0:
		what = "refused or undeliverable"
	case t.streak > 0:
	case r.failures() >= minFailures:
		n, what, took = r.failures(), fmt.Sprintf("of %d failed", r.opened), c.now.Sub(t.halvedAt)
	default:
		return Action{}, false
	}
	reason := fmt.Sprintf("%s %s in %.1f s", plural(n, "client SYN"), what, took.Seconds())
	check := "; loxilb's own check: " + failure
	t.certain = t.othersServed && t.othersServe(c)
	if !t.certain && !t.canTakeOut() {
		t.nextCheck = c.now.Add(recheckDelay)
		return t.keep(reason + check)
	}
	a := t.markOut(reason, failsChecks, c.now)
	a.Evidence += check
	return a, true
}

// keep reports, once, that a failing endpoint is not ejected, because too few others are left.
func (t *target) keep(reason string) (a Action, ok bool) {
	if t.heldReason == "" {
		t.heldReason = reason
	}
	if t.kept && !t.unserved {
		return a, false
	}
	t.kept, t.unserved = true, false
	return Action{Kind: Eject, At: t.at, Evidence: reason + "; kept in rotation: too few others are left", Kept: true}, true
}

func plural(n uint64, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// eject ejects an endpoint, unless too many are out already.
func (t *target) eject(reason string, why cause, now time.Time) (a Action, ok bool) {
	if !t.canTakeOut() {
		t.nextCheck = now.Add(recheckDelay)
		return a, false
	}
	t.certain = false
	return t.markOut(reason, why, now), true
}

func (t *target) markOut(reason string, why cause, now time.Time) Action {
	if t.backOffs > 0 && t.backOffEnded(now) {
		t.backOffs = 0
	}
	t.out, t.cause, t.tries, t.unansweredSYNs = true, why, 0, 0
	t.kept, t.unserved = false, false
	t.unanswered, t.stall, t.delta = unanswered{}, stall{}, tally{}
	t.reason = reason
	t.startBackOff(now)
	return Action{Kind: Eject, At: t.at, Evidence: t.reason, Certain: t.certain}
}

// canTakeOut reports whether the endpoint can be ejected: in each service that also has other
// endpoints, half of them must stay, or backups must be ready to replace the whole level.
func (t *target) canTakeOut() (may bool) {
	for _, g := range t.groups {
		switch {
		case g.eligible < 2 || g.ineligible[t.at]:
		case 2*(g.countOut()+1) > g.eligible && !g.hasReadyBackups(t):
			return false
		default:
			may = true
		}
	}
	return may
}

// startBackOff begins the next back-off, which is longer than the last one.
func (t *target) startBackOff(now time.Time) {
	t.backOffs++
	t.until = now.Add(backOff(t.backOffs))
	if t.cause.needsClients() {
		t.until = now.Add(trialPause)
	}
	t.clearSuspicion()
}

// backOff returns the length of the n-th consecutive back-off.
func backOff(n int) time.Duration {
	return min(firstBackOff<<min(max(n-1, 0), bits.Len64(uint64(longestBackOff/firstBackOff))), longestBackOff)
}

// retry checks an ejected endpoint after its back-off, or tries it with a client's connection.
func (t *target) retry(c clock) (a Action, ok bool) {
	now := c.now
	if now.Before(t.until) {
		return a, false
	}
	if t.cause.needsClients() {
		t.until = now.Add(trialPause)
		return t.trial()
	}
	t.pending, t.othersServed = true, t.othersServe(c)
	a = Action{Kind: Check, At: t.at, Timeout: returnTimeout, Retry: true}
	if t.cause == resetsClients {
		a.Hold = resetHold
	}
	return a, true
}

// handleRetry handles the result of retry's check: the endpoint returns, or its back-off continues.
func (t *target) handleRetry(failure string, c clock) Action {
	if failure == "" {
		return t.readmit(c.now)
	}
	t.tries++
	t.startBackOff(c.now)
	t.certain = t.cause == failsChecks && t.othersServed && t.othersServe(c)
	tries := t.tries
	if t.cause == failsChecks {
		tries++ // include the check before the ejection
	}
	count := "1 try"
	if tries > 1 {
		count = fmt.Sprintf("%d tries", tries)
	}
	evidence := fmt.Sprintf("%s; loxilb's own check: %s (%s)", t.reason, failure, count)
	return Action{Kind: Eject, At: t.at, Evidence: evidence, Certain: t.certain}
}

func (t *target) readmit(now time.Time) Action {
	t.out, t.readmittedAt, t.pending = false, now, false
	t.clearSuspicion()
	return Action{Kind: Return, At: t.at}
}
