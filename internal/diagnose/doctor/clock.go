package doctor

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// clock checks whether the clock is synchronized, and whether it has jumped.
func clock(m *Machine) (out []Finding, err error) {
	if m.Root == "" {
		var t unix.Timex
		if _, err := unix.Adjtimex(&t); err != nil {
			return nil, fmt.Errorf("read the state of the clock: %w", err)
		}
		out = unsynchronised(t.Status&unix.STA_UNSYNC != 0)
	}
	if !m.Facts.Started.IsZero() {
		now := time.Now()
		out = append(out, clockJump(now.Round(0).Sub(m.Facts.Started.Round(0))-now.Sub(m.Facts.Started))...)
	}
	return out, nil
}

func unsynchronised(is bool) []Finding {
	if !is {
		return nil
	}
	return []Finding{{
		About: "synchronised", What: "no time synchronization (chrony, timesyncd and ntpd are not running)", Sure: Possible,
		Why: "log times cannot be compared between machines, and valid certificates might appear expired", Command: "apt-get install chrony, or: timedatectl set-ntp true",
	}}
}

// clockJump reports how far the wall clock has deviated from a monotonic one since the daemon's
// start.
func clockJump(by time.Duration) []Finding {
	if by.Abs() < 2*time.Second {
		return nil
	}
	return []Finding{{
		About: "jump", What: fmt.Sprintf("the clock jumped by %s since the daemon started", by.Round(time.Second)), Sure: Certain,
		Why: "tokens and log times are affected; connections and probes are not", Command: "slew the clock instead of stepping it: chronyc tracking",
	}}
}
