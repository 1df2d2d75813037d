package health

import (
	"math/rand/v2"
	"time"
)

// A target is unproven until it is up for the first time. Clients wait for it: an endpoint of a new
// service often begins to listen moments after the service is made. So it is probed more often than
// later, first every quickInterval, and the less often the longer that has no success.
const (
	quickInterval = 100 * time.Millisecond
	// quickShare is the part of the time since the target was set that passes between two probes.
	quickShare = 10
)

// setUnproven marks a target as unproven or proven, and counts the unproven ones.
func (m *Monitor) setUnproven(t *target, unproven bool) {
	if t.unproven == unproven {
		return
	}
	t.unproven = unproven
	if unproven {
		m.unproven++
	} else {
		m.unproven--
	}
}

// probeSooner moves the next probe of an unproven target forward. Probes of thousands of dead
// endpoints after a start do not come more often than atOnce in quickInterval.
func (m *Monitor) probeSooner(t *target, now, begun time.Time) {
	interval := max(quickInterval*time.Duration(1+m.unproven/atOnce), now.Sub(t.set)/quickShare)
	at := begun.Add(interval)
	if at.Before(now) {
		at = now
	}
	if at.Before(t.phase) {
		t.phase = at
		m.push(t, at)
	}
}

// followUnproven updates an unproven target after a probe.
func (m *Monitor) followUnproven(t *target, now, begun time.Time) {
	if !t.unproven {
		return
	}
	if t.wasUp {
		m.setUnproven(t, false)
		t.phase = now.Add(rand.N(t.Probe.Interval) + 1)
		m.push(t, t.phase)
		return
	}
	if t.failures == t.Probe.Fall {
		m.announce(t) // from now on its failures are confirmed
	}
	m.probeSooner(t, now, begun)
}
