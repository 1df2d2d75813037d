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

// verdict determines the state of a target from the results of its probes, Override and Eject.
type verdict struct {
	probed              State     // state by probes alone
	wasUp               bool      // probed was Up
	confirmed           bool      // probed was Up, or enough consecutive probes have failed
	failures, successes int       // consecutive ones; one of them is 0
	first, last         time.Time // when the first and the last of these probes began
	result              string    // of the last probe
	required            int       // consecutive results that change the state; 0: the last probe does not count
	checked             time.Time
	delays              [delaysLength]time.Duration // of the last successes, in a ring
	delayCount          int                         // number of delays so far

	override       State // set by Override; Unknown: none
	overrideReason string

	ejection string // evidence, set by Eject; "": not ejected

	since   time.Time
	history []Change
	downs   uint64        // how often the state has become Down
	wasDown time.Duration // total time in state Down before since
	failed  uint64        // total number of failed probes

	lastProbeState State     // the result of probeState in the last call of recordState
	probeSince     time.Time // when lastProbeState last changed
}

// state returns the resulting state.
func (v *verdict) state() State {
	if v.override == Unknown && v.ejection != "" {
		return Down
	}
	return v.probeState()
}

// probeState returns the state without Eject.
func (v *verdict) probeState() State {
	if v.override != Unknown {
		return v.override
	}
	return v.probed
}

// success counts a successful probe. For an unknown target, one is enough; a target that is down
// needs rise consecutive ones.
func (v *verdict) success(result string, delay time.Duration, rise int, begun time.Time) {
	v.failures = 0
	v.successes++
	v.recordTime(v.successes, begun)
	if delay > 0 {
		v.delays[v.delayCount%delaysLength] = delay
		v.delayCount++
	}
	if v.probed == Unknown {
		rise = 1
	}
	v.result, v.required = result, rise
	if v.successes >= rise {
		v.probed, v.wasUp, v.confirmed = Up, true, true
	}
}

// failure counts a failed probe. For an unknown target, one is enough; a target that is up goes
// down after fall consecutive ones.
func (v *verdict) failure(result string, fall int, begun time.Time) {
	v.successes = 0
	v.failures++
	v.failed++
	v.confirmed = v.confirmed || v.failures >= fall
	v.recordTime(v.failures, begun)
	if v.probed == Unknown {
		fall = 1
	}
	v.result, v.required = result, fall
	if v.failures >= fall {
		v.probed = Down
	}
}

// recordTime records when the n-th consecutive probe with the same result began.
func (v *verdict) recordTime(n int, begun time.Time) {
	if n == 1 {
		v.first = begun
	}
	v.last = begun
}

// resetCounts resets the counts, because the probe has changed. The state stays until there are
// enough new results.
func (v *verdict) resetCounts() { v.failures, v.successes = 0, 0 }

// evidence returns a sentence about the reason for the state.
func (v *verdict) evidence(subject string) string {
	switch {
	case v.override != Unknown:
		return v.overrideReason
	case v.ejection != "":
		return v.ejection
	case v.result == "":
		return subject + ": not probed yet"
	case v.required == 0:
		return subject + ": " + v.result
	}
	return fmt.Sprintf("%s: %s, %d of %d", subject, v.result, min(max(v.failures, v.successes), v.required), v.required)
}

// recordState adds the state to the history if it is no longer the one before. It reports whether
// the state or the probe state has changed: they differ while the target is ejected.
func (v *verdict) recordState(before State, now time.Time, subject string) (changed bool) {
	after, probed := v.state(), v.probeState()
	if probed != v.lastProbeState {
		v.lastProbeState, v.probeSince, changed = probed, now, true
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
		State: v.state(), ProbeState: v.probeState(), Since: v.since, ProbeSince: v.probeSince, Evidence: v.evidence(subject), History: slices.Clone(v.history),
		Failures: v.failures, Successes: v.successes, First: v.first, Last: v.last, Checked: v.checked,
		Downs: v.downs, WasDown: v.wasDown, Failed: v.failed, Overridden: v.override != Unknown, Undecided: v.result != "" && v.required == 0,
		Unconfirmed: v.probed == Down && !v.confirmed,
	}
	delays := v.delays[:min(v.delayCount, delaysLength)]
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
