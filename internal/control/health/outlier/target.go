package outlier

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/lb/report"
)

// target is an endpoint, of one or more services.
type target struct {
	at     netip.AddrPort
	groups []*group
	rows   map[*group]int // and its row there

	news   tally // since decide was called
	recent tally // of the window
	aged   time.Time
	active uint32 // the number of the last reading with new results
	usual  int8   // the bucket that most handshakes are in

	streak  uint64    // SYNs since the last answered one
	refused uint64    // the refused ones among them
	since   time.Time // time of the first failure

	pending      bool // a check is running
	othersServed bool // another endpoint served clients when that check began
	nextCheck    time.Time

	unansweredSYNs     uint64 // of clients, since the last answer, while it accepted our own connections
	unansweredSince    time.Time
	asymmetricReported bool

	unanswered
	stall

	held     string // why it should have been ejected, when too many others were; "": it was not held
	kept     bool   // reported as failing, but stays in rotation
	unserved bool   // kept although none of its clients is served, since it accepts our connections

	out          bool
	cause        cause
	certain      bool // it fails while another endpoint serves clients
	reason       string
	tries        int
	level        int // of the back-off
	until        time.Time
	readmittedAt time.Time // when it was readmitted
}

// moment is the time of a decision.
type moment struct {
	now     time.Time
	jiffy   time.Duration
	reading uint32 // number of the last Decide
}

func (t *target) join(g *group, row int) {
	if !slices.Contains(t.groups, g) {
		t.groups, g.members = append(t.groups, g), append(g.members, t)
	}
	t.rows[g] = row
}

// tally counts outcomes of SYNs.
type tally struct {
	opened, answered, repeated, refused, unreachable, reset uint64
	completed, clients, served, stalled                     uint64
	chosen, chosenClients                                   uint64 // stalled connections in services where clients choose the endpoint
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
	a.chosen += b.chosen
	a.chosenClients += b.chosenClients
}

// hasFailures reports whether there were outcomes other than success.
func (a *tally) hasFailures() bool {
	return a.opened > a.answered || a.stalled+a.chosen > 0 || a.repeated+a.refused+a.unreachable+a.reset > 0
}

func (a *tally) halve() {
	for _, n := range []*uint64{&a.opened, &a.answered, &a.repeated, &a.refused, &a.unreachable, &a.reset} {
		*n /= 2
	}
}

// failures returns the number of failures. A repeated SYN is one: its connection was not
// established in the second before.
func (a *tally) failures() uint64 {
	return min(a.opened, a.repeated+a.refused+a.unreachable+a.reset)
}

func (a *tally) share() float64 {
	if a.opened == 0 {
		return 0
	}
	return float64(a.failures()) / float64(a.opened)
}

// patience returns the time after which an answer is late.
func (t *target) patience(jiffy time.Duration) time.Duration {
	if t.usual == unknownUsual {
		return unknownPatience
	}
	return min(max(usualTimes*report.HandshakeBound(int(t.usual), jiffy), minPatience), maxPatience)
}

// isIdle reports whether there is nothing to decide before the next event, and no state to
// keep.
func (t *target) isIdle(now time.Time) bool {
	return t.streak == 0 && t.stalls+t.chosen == 0 && !t.out && !t.kept && !t.pending && t.recent.failures() == 0 && (t.level == 0 || t.calmedDown(now)) &&
		(t.unansweredSYNs == 0 || !t.asymmetricReported && now.Sub(t.unansweredSince) > 8*window)
}

// calmedDown reports whether the endpoint was healthy long enough for the back-off to restart.
func (t *target) calmedDown(now time.Time) bool {
	return now.Sub(t.readmittedAt) > max(calm, 2*backOff(t.level))
}

// addCounts adds the new counts.
func (t *target) addCounts(now time.Time) {
	t.age(now)
	t.recent.add(&t.news)
	t.updateStreak(now)
	t.expire(now)
	t.news = tally{}
}

// decide returns the next action.
func (t *target) decide(m moment) (a Action, ok bool) {
	now := m.now
	switch {
	case t.asymmetricReported && t.unansweredSYNs == 0:
		t.asymmetricReported = false
		return Action{Kind: ReplySeen, At: t.at}, true
	case t.kept && t.held == "" && !(t.unserved && t.leavesAllUnserved()):
		t.kept, t.unserved = false, false
		return Action{Kind: Return, At: t.at}, true
	case t.servesAgain():
		return t.readmit(now), true
	case t.pending:
		return a, false
	case t.isHanging(m.reading):
		return t.eject(t.stallReason, neverAnswers, now)
	case t.held != "" && t.canTakeOut():
		t.certain = false
		return t.markOut(t.held, refusesUs, now), true
	case now.Before(t.nextCheck):
		return a, false
	case t.out:
		return t.retry(m)
	case t.held != "", t.isUnresponsive(m), t.failsTooOften(m.reading, func(r *tally) uint64 { return r.repeated + r.refused + r.unreachable }):
		t.pending, t.othersServed = true, t.othersServe(m)
		return Action{Kind: Check, At: t.at, Timeout: max(suspectAnswer, t.patience(m.jiffy))}, true
	case t.failsTooOften(m.reading, func(r *tally) uint64 { return r.reset }):
		return t.eject(fmt.Sprintf("%d of %d client connections reset before an answer", t.recent.reset, t.recent.opened), resetsClients, now)
	}
	return a, false
}

// age reduces the weight of old counts.
func (t *target) age(now time.Time) {
	if t.aged.IsZero() || now.Sub(t.aged) > 8*window {
		t.recent, t.aged = tally{}, now
	}
	for now.Sub(t.aged) >= window {
		t.recent.halve()
		t.aged = t.aged.Add(window)
	}
}

// updateStreak counts unsuccessful SYNs since the last answer. SYNs that were read together with
// the answer may have arrived after it.
func (t *target) updateStreak(now time.Time) {
	n := &t.news
	t.unanswered.update(t, now)
	t.stall.update(n, now)
	bad := n.refused + n.unreachable
	if n.answered > 0 {
		t.held, t.unansweredSYNs = "", 0
		t.streak, t.refused, t.since = n.opened-min(n.opened, n.answered+bad), 0, now
		return
	}
	if t.streak == 0 {
		t.since = now.Add(-Pace)
	}
	t.streak += n.opened + n.repeated
	t.refused += bad
}

// isUnresponsive reports whether SYNs have been unsuccessful for so long that the endpoint must be
// checked.
func (t *target) isUnresponsive(m moment) bool {
	took, patience := m.now.Sub(t.since), t.patience(m.jiffy)
	return t.streak > 0 && (t.refused >= streakLength || t.streak >= streakLength && took >= patience || took >= max(late, patience))
}

// failsNow reports whether the latest results of an endpoint are failures.
func (t *target) failsNow(m moment) bool {
	return t.refused > 0 || t.streak > 0 && m.now.Sub(t.since) > Pace
}

// failsTooOften reports whether the failure rate of a kind is high, and higher than at most other
// endpoints of a service.
func (t *target) failsTooOften(number uint32, kind func(*tally) uint64) bool {
	r := &t.recent
	if n := kind(r); n < minFailures || float64(n) < suspectShare*float64(r.opened) {
		return false
	}
	return slices.ContainsFunc(t.groups, func(g *group) bool {
		median, ok := g.medianWithout(t, number)
		return ok && r.share() >= median+suspectAboveMedian
	})
}

// handleAnswer keeps an endpoint in rotation that answered us. If clients' SYNs still stay
// unanswered, it reports that.
func (t *target) handleAnswer(now time.Time) (a Action, ok bool) {
	if t.streak > 0 && t.refused == 0 && t.held == "" { // while it was held, SYNs met a dead endpoint
		if t.unansweredSYNs == 0 {
			t.unansweredSince = t.since
		}
		t.unansweredSYNs += t.streak
	}
	if t.held != "" {
		t.unanswered = unanswered{}
	}
	t.clearSuspicion()
	if reason := t.asymmetryReason(now); reason != "" {
		return t.eject(reason, answersNobody, now)
	}
	long := t.unansweredSYNs >= minUnansweredSYNs && now.Sub(t.unansweredSince) >= minUnansweredTime
	if long && !t.kept && t.leavesAllUnserved() {
		t.kept, t.unserved = true, true
		return Action{Kind: Eject, At: t.at, Evidence: t.unservedReason(now), Kept: true}, true
	}
	if t.asymmetricReported || !long {
		return a, false
	}
	t.asymmetricReported = true
	return Action{Kind: AsymmetricReply, At: t.at}, true
}

// clearSuspicion resets the suspicion against an endpoint that has answered.
func (t *target) clearSuspicion() {
	t.streak, t.refused, t.held = 0, 0, ""
	t.recent = tally{}
}

// confirmFailure ejects a suspect that has not answered, unless clients had success meanwhile.
//
// Of endpoints that fail together, half stay: the fault might be on this machine, or the load of
// one endpoint would overload the next. While another endpoint serves clients, before and after the
// check, neither is likely, and each failing endpoint leaves.
func (t *target) confirmFailure(failure string, m moment) (Action, bool) {
	n, what := t.streak, "without an answer"
	took := m.now.Sub(t.since)
	switch r := &t.recent; {
	case t.streak > 0 && t.refused > 0:
		what = "refused or undeliverable"
	case t.streak > 0:
	case r.failures() >= minFailures:
		n, what, took = r.failures(), fmt.Sprintf("of %d failed", r.opened), m.now.Sub(t.aged)
	default:
		return Action{}, false
	}
	reason := fmt.Sprintf("%s %s in %.1f s", plural(n, "client SYN"), what, took.Seconds())
	check := "; loxilb's own check: " + failure
	t.certain = t.othersServed && t.othersServe(m)
	if !t.certain && !t.canTakeOut() {
		t.nextCheck = m.now.Add(recheckDelay)
		return t.keep(reason + check)
	}
	a := t.markOut(reason, refusesUs, m.now)
	a.Evidence += check
	return a, true
}

// keep reports once that a failing endpoint cannot be ejected: without it, no client would be
// served better.
func (t *target) keep(reason string) (a Action, ok bool) {
	if t.held == "" {
		t.held = reason
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

// eject ejects an endpoint, if not too many are out already.
func (t *target) eject(reason string, why cause, now time.Time) (a Action, ok bool) {
	if !t.canTakeOut() {
		t.nextCheck = now.Add(recheckDelay)
		return a, false
	}
	t.certain = false
	return t.markOut(reason, why, now), true
}

func (t *target) markOut(reason string, why cause, now time.Time) Action {
	if t.level > 0 && t.calmedDown(now) {
		t.level = 0
	}
	t.out, t.cause, t.tries, t.unansweredSYNs = true, why, 0, 0
	t.kept, t.unserved = false, false
	t.unanswered, t.stall, t.news = unanswered{}, stall{}, tally{}
	t.reason = reason
	t.startBackOff(now)
	return Action{Kind: Eject, At: t.at, Evidence: t.reason, Certain: t.certain}
}

// canTakeOut reports whether enough endpoints remain in each service that uses this endpoint and
// others: half of them, or backups if a whole level is lost.
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

// startBackOff makes the endpoint wait, longer than the last time.
func (t *target) startBackOff(now time.Time) {
	t.level++
	t.until = now.Add(backOff(t.level))
	if t.cause.needsClients() {
		t.until = now.Add(trialPause)
	}
	t.clearSuspicion()
}

// backOff returns the wait after the n-th ejection.
func backOff(n int) time.Duration {
	return min(firstBackOff<<min(max(n-1, 0), bits.Len64(uint64(longestBackOff/firstBackOff))), longestBackOff)
}

// retry checks an endpoint whose back-off has ended.
func (t *target) retry(m moment) (a Action, ok bool) {
	now := m.now
	if now.Before(t.until) {
		return a, false
	}
	if t.cause.needsClients() {
		t.until = now.Add(trialPause)
		return t.trial()
	}
	t.pending, t.othersServed = true, t.othersServe(m)
	a = Action{Kind: Check, At: t.at, Timeout: returnAnswer, Again: true}
	if t.cause == resetsClients {
		a.Hold = resetAnswer
	}
	return a, true
}

// handleRetry readmits an endpoint that has answered, or extends its back-off.
func (t *target) handleRetry(failure string, m moment) Action {
	if failure == "" {
		return t.readmit(m.now)
	}
	t.tries++
	t.startBackOff(m.now)
	t.certain = t.cause == refusesUs && t.othersServed && t.othersServe(m)
	tries := t.tries
	if t.cause == refusesUs {
		tries++ // including the check before it was ejected
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
