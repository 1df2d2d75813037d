package loader

import "time"

// Timeouts while there is pressure: of half-open connections, closed ones, and source ports at
// rest.
const (
	halfOpenPressed = 3 * time.Second
	closedPressed   = time.Second
	snatRestPressed = 3 * time.Second
)

// pressure are the constants of bpf/limit/pressure.h.
func (s *Settings) pressure() map[string]any {
	return map[string]any{
		"half_open_percent":         uint32(s.HalfOpen),
		"timeout_half_open_pressed": s.Jiffies(halfOpenPressed),
		"timeout_closed_pressed":    s.Jiffies(closedPressed),
		"timeout_snat_rest_pressed": s.Jiffies(snatRestPressed),
	}
}
