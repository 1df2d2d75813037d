// Package monotime stores times as uptimes of the machine, so a deadline survives the process even
// if the wall clock is corrected later.
package monotime

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// clockStep is the least difference between the clocks that counts as a step of the wall clock. A
// smaller difference is slewing, which must not move a time that users have set.
const clockStep = time.Second

// A Stored is a time in its stored form.
type Stored struct {
	At     time.Time     // wall clock
	Boot   string        // boot ID of the machine that Uptime refers to; "": unknown
	Uptime time.Duration // uptime of the machine at that time
}

// NewStored returns the stored form of a time.
func NewStored(t time.Time) Stored {
	m := Stored{At: t.Round(0).UTC()}
	if isFar(t) {
		return m
	}
	if m.Boot = boot(); m.Boot != "" {
		m.Uptime = Uptime() + time.Until(t)
	}
	return m
}

// Time returns the stored time with a monotonic reading. It does not depend on the wall clock until
// the machine restarts.
func (m Stored) Time() time.Time {
	if m.Boot == "" || m.Boot != boot() {
		return FromWall(m.At)
	}
	now := time.Now()
	left := m.Uptime - Uptime()
	if step := left - m.At.Sub(now.Round(0)); step.Abs() < clockStep {
		return FromWall(m.At)
	}
	return now.Add(left)
}

// FromWall adds a monotonic reading to a wall-clock time, so later changes of the wall clock do not
// move it.
func FromWall(t time.Time) time.Time {
	if t.IsZero() || isFar(t) {
		return t
	}
	now := time.Now()
	return now.Add(t.Sub(now.Round(0))) // changing its location would drop the monotonic reading
}

// isFar reports whether a time is too far from now for a time.Duration (292 years).
func isFar(t time.Time) bool {
	const century = 100 * 365 * 24 * time.Hour
	return time.Until(t).Abs() > century
}

// Uptime returns how long the machine has run, including the time it was suspended.
func Uptime() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0 // every supported kernel has this clock
	}
	return time.Duration(now.Nano())
}

// boot returns the boot ID of the machine; "" if it is unknown.
func boot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
