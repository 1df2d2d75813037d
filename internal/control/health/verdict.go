package health

import (
	"fmt"
	"slices"
	"time"
)

const (
	historyLength = 20
	delaysLength  = 16
)

// verdict combines the results of a target's probes, and the reports of others.
type verdict struct {
	probed              State // result of the probes
	wasUp               bool  // it has been Up
	confirmed           bool  // it was Up, or enough probes in a row have failed
	failures, successes int
	first, last         time.Time // when the first and the last of these probes began
	what                string    // the last result
	of                  int       // required number of consecutive results; 0: it does not count
	checked             time.Time
	delays              [delaysLength]time.Duration // of the last successes, in a ring
	answered            int                         // number of delays

	override       State  // set by Override; Unknown: none
	overrideReason string // why

	passive string // why clients' handshakes report it down; "": they do not

	since   time.Time
	history []Change
	downs   uint64        // how often it has become down
	wasDown time.Duration // for how long, before since
	failed  uint64        // probes, in all

	probeStateSeen State // the value of probeState in the last call of note
	notedSince     time.Time
}

// state returns the resulting state.
func (v *verdict) state() State {
	if v.override == Unknown && v.passive != "" {
		return Down
	}
	return v.probeState()
}

// probeState returns the state without clients' handshakes.
func (v *verdict) probeState() State {
	if v.override != Unknown {
		return v.override
	}
	return v.probed
}

// success counts a good answer. One answer brings an unknown target up; a target that is down needs
// rise of them.
func (v *verdict) success(what string, delay time.Duration, rise int, begun time.Time) {
	v.failures = 0
	v.successes++
	v.follow(v.successes, begun)
	if delay > 0 {
		v.delays[v.answered%delaysLength] = delay
		v.answered++
	}
	if v.probed == Unknown {
		rise = 1
	}
	v.what, v.of = what, rise
	if v.successes >= rise {
		v.probed, v.wasUp, v.confirmed = Up, true, true
	}
}

// failure counts a bad one, or none.
func (v *verdict) failure(what string, fall int, begun time.Time) {
	v.successes = 0
	v.failures++
	v.failed++
	v.confirmed = v.confirmed || v.failures >= fall
	v.follow(v.failures, begun)
	if v.probed == Unknown {
		fall = 1
	}
	v.what, v.of = what, fall
	if v.failures >= fall {
		v.probed = Down
	}
}

// follow records when the n-th consecutive probe with the same result began.
func (v *verdict) follow(n int, begun time.Time) {
	if n == 1 {
		v.first = begun
	}
	v.last = begun
}

// restart resets the counts, as the probe's question has changed. The state stays until there are
// enough new answers.
func (v *verdict) restart() { v.failures, v.successes = 0, 0 }

// evidence returns a sentence for it.
func (v *verdict) evidence(subject string) string {
	switch {
	case v.override != Unknown:
		return v.overrideReason
	case v.passive != "":
		return v.passive
	case v.what == "":
		return subject + ": not probed yet"
	case v.of == 0:
		return subject + ": " + v.what
	}
	return fmt.Sprintf("%s: %s, %d of %d", subject, v.what, min(max(v.failures, v.successes), v.of), v.of)
}

// recordState adds the state to the history if it has changed. A state that handshakes have shown
// first counts as changed once probes confirm it.
func (v *verdict) recordState(before State, now time.Time, subject string) (changed bool) {
	after, probed := v.state(), v.probeState()
	if probed != v.probeStateSeen {
		v.probeStateSeen, v.notedSince, changed = probed, now, true
	}
	if after == before {
		return changed
	}
	if before == Down {
		v.wasDown += max(0, now.Sub(v.since))
	}
	if after == Down {
		v.downs++
	}
	v.since = now
	if len(v.history) == historyLength {
		v.history = slices.Delete(v.history, 0, 1)
	}
	v.history = append(v.history, Change{At: now, From: before, To: after, Evidence: v.evidence(subject)})
	return true
}

func (v *verdict) status(subject string) Status {
	s := Status{
		State: v.state(), ProbeState: v.probeState(), Since: v.since, ProbeSince: v.notedSince, Evidence: v.evidence(subject), History: slices.Clone(v.history),
		Failures: v.failures, Successes: v.successes, First: v.first, Last: v.last, Checked: v.checked,
		Downs: v.downs, WasDown: v.wasDown, Failed: v.failed, Overridden: v.override != Unknown, Undecided: v.what != "" && v.of == 0,
		Unconfirmed: v.probed == Down && !v.confirmed,
	}
	delays := v.delays[:min(v.answered, delaysLength)]
	if len(delays) == 0 {
		return s
	}
	var sum time.Duration
	for _, d := range delays {
		sum += d
	}
	s.MinDelay, s.AvgDelay, s.MaxDelay = slices.Min(delays), sum/time.Duration(len(delays)), slices.Max(delays)
	return s
}
