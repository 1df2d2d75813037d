// Package retry helps loops that may fail: it determines the wait after each failure, logs each
// failure once, and remembers the last one.
package retry

import (
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// minWait and maxWait bound the wait after a failure; it grows from one to the other, with jitter.
const (
	minWait = 250 * time.Millisecond
	maxWait = 30 * time.Second
)

// Loop is the state of one loop. It is safe for concurrent use.
type Loop struct {
	effect string // its effect, for the log: "VIPs are announced"
	log    *slog.Logger

	mu    sync.Mutex
	wait  *backoff.ExponentialBackOff
	err   error
	since time.Time
}

// New returns a loop that has not failed yet. effect describes it in a sentence.
func New(effect string, log *slog.Logger) *Loop {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval, wait.Multiplier = minWait, maxWait, 2
	return &Loop{effect: effect, log: log, wait: wait}
}

// Failed records a failure, and returns the wait before the next attempt. It logs a failure that
// differs from the previous one.
func (l *Loop) Failed(err error) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait := l.wait.NextBackOff()
	if l.err == nil {
		l.since = time.Now()
	}
	if l.err == nil || l.err.Error() != err.Error() {
		l.log.Error("not working; trying again", "what", l.effect, "error", err)
	}
	l.err = err
	return wait
}

// Worked records that an attempt succeeded.
func (l *Loop) Worked() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		return
	}
	l.log.Info("working again", "what", l.effect, "after", time.Since(l.since).Round(time.Millisecond))
	l.err, l.since = nil, time.Time{}
	l.wait.Reset()
}

// LastError returns the error of the loop's last attempt, and since when it has been failing.
func (l *Loop) LastError() (since time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since, l.err
}
