// Package moment has moments outlive the process, whatever becomes of the wall's clock meanwhile: it may be wrong when a machine starts,
// and be set later.
package moment

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// set is by how much the clocks differ once the wall's was set: less is that it was slowed or hurried, and no reason to move a moment that
// users have named.
const set = time.Second

// Moment is a time as it is stored.
type Moment struct {
	At     time.Time     // by the wall's clock
	Boot   string        // the start of the machine since which Uptime counts; "": not known
	Uptime time.Duration // of the machine at that time
}

// Of is a time, to be stored.
func Of(t time.Time) Moment {
	m := Moment{At: t.Round(0).UTC()}
	if isFar(t) {
		return m
	}
	if m.Boot = boot(); m.Boot != "" {
		m.Uptime = Uptime() + time.Until(t)
	}
	return m
}

// Time is the time that was stored, by the clock that nobody sets: as long as the machine runs, the wall's is not asked.
func (m Moment) Time() time.Time {
	if m.Boot == "" || m.Boot != boot() {
		return Steady(m.At)
	}
	now := time.Now()
	left := m.Uptime - Uptime()
	if off := left - m.At.Sub(now.Round(0)); off.Abs() < set {
		return Steady(m.At)
	}
	return now.Add(left)
}

// Steady is a time of the wall's clock by the one that nobody sets: whether it is over is no matter of the wall's from here on.
func Steady(t time.Time) time.Time {
	if t.IsZero() || isFar(t) {
		return t
	}
	now := time.Now()
	return now.Add(t.Sub(now.Round(0))) // to change its location would take that clock off
}

// isFar reports whether a time is so far from now that a time.Duration, which ends after 292 years, may not hold the difference.
func isFar(t time.Time) bool {
	const century = 100 * 365 * 24 * time.Hour
	return time.Until(t).Abs() > century
}

// Uptime is for how long the machine has run, by the clock that nobody sets and that goes on while it sleeps.
func Uptime() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0 // every kernel that takes our programs has it
	}
	return time.Duration(now.Nano())
}

// boot names the start of the machine; "": it is not known.
func boot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
