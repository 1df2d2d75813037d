package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// attempt is one attempt of a client, printed as a line by `bench clients`.
type attempt struct {
	Kind   string
	At     time.Time // when it began
	Took   time.Duration
	Result string
}

// Results of attempts. Any other result is an error message.
const (
	attemptOK  = "ok"
	attemptCut = "cut" // unfinished at the end of the program
)

// lostSYNTime is the least duration of a connection whose SYN was lost: TCP repeats a SYN after a
// second. lostDataTime is the least duration of an exchange whose data was lost: TCP repeats it
// after at least 200 ms.
const (
	lostSYNTime  = 900 * time.Millisecond
	lostDataTime = 200 * time.Millisecond
)

// servedShare is the share of new connections that must succeed. Some always fail; with the
// kernel's SYN proxy, one in a hundred does.
const servedShare = 0.95

// String returns the attempt's line.
func (a attempt) String() string {
	return fmt.Sprintf("%s %d %d %s", a.Kind, a.At.UnixMicro(), a.Took.Microseconds(), a.Result)
}

// parseAttempts parses lines. An incomplete last line is ignored.
func parseAttempts(text string) (out []attempt, err error) {
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		f := strings.Fields(line)
		if len(f) != 4 {
			return nil, fmt.Errorf("the clients printed %.300q", line)
		}
		at, err1 := strconv.ParseInt(f[1], 10, 64)
		took, err2 := strconv.ParseInt(f[2], 10, 64)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("the clients printed %.300q", line)
		}
		out = append(out, attempt{Kind: f[0], At: time.UnixMicro(at), Took: time.Duration(took) * time.Microsecond, Result: f[3]})
	}
	return out, nil
}

// attemptsBetween returns the attempts of a kind that began in a span.
func attemptsBetween(all []attempt, kind string, from, to time.Time) (out []attempt) {
	for _, a := range all {
		if a.Kind == kind && !a.At.Before(from) && a.At.Before(to) {
			out = append(out, a)
		}
	}
	return out
}

// sinceFirst returns the time since the first new connection. Held connections do not count.
func sinceFirst(all []attempt, now time.Time) (d time.Duration) {
	for _, a := range all {
		if a.Kind == attemptKnown || a.Kind == attemptFirst {
			d = max(d, now.Sub(a.At))
		}
	}
	return d
}

// connects counts new connections by result.
type connects struct {
	Tried, OK     int
	Min, P50, P99 time.Duration // of successful ones
	Failed        map[string]int
}

func countConnects(all []attempt) (c connects) {
	c.Failed = map[string]int{}
	var took []time.Duration
	for _, a := range all {
		switch a.Result {
		case attemptCut:
			continue
		case attemptOK:
			took = append(took, a.Took)
		default:
			c.Failed[a.Result]++
		}
		c.Tried++
	}
	c.OK = len(took)
	if c.OK > 0 {
		slices.Sort(took)
		c.Min, c.P50, c.P99 = took[0], took[len(took)/2], took[len(took)*99/100]
	}
	return c
}

// percent returns the share that succeeded.
func (c connects) percent() float64 {
	if c.Tried == 0 {
		return 0
	}
	return 100 * float64(c.OK) / float64(c.Tried)
}

// countExchanges returns how many exchanges over held connections were late because of a lost
// packet, and how many broke their connection. An exchange counts in the span in which it began.
func countExchanges(held []attempt) (late, broken int) {
	for _, a := range held {
		switch {
		case a.Result != attemptOK && a.Result != attemptCut:
			broken++
		case a.Took >= lostDataTime:
			late++
		}
	}
	return late, broken
}

// recoveryAfter returns the time from the end of a flood until service is normal: the end of the
// last half second with too few successful connections.
func recoveryAfter(all []attempt, end time.Time) (recovery time.Duration) {
	const slot = 500 * time.Millisecond
	tried, made := map[time.Duration]int{}, map[time.Duration]int{}
	for _, a := range all {
		if a.Kind != attemptKnown && a.Kind != attemptFirst || a.Result == attemptCut || a.At.Before(end) {
			continue
		}
		at := a.At.Sub(end) / slot
		tried[at]++
		if a.Result == attemptOK && a.Took < lostSYNTime {
			made[at]++
		}
	}
	for at, n := range tried {
		if float64(made[at]) < servedShare*float64(n) {
			recovery = max(recovery, (at+1)*slot)
		}
	}
	return recovery
}

// served reports whether enough new connections are made.
func (c connects) served() bool { return float64(c.OK) >= servedShare*float64(c.Tried) }
