package health

import (
	"math/rand/v2"
	"time"
)

// A target is unproven until it is up for the first time. Clients may wait for that: an endpoint of
// a new service often begins to listen moments after the service is created. So an unproven target
// is probed more often, at first every quickInterval, and later at intervals that grow with the
// time since its probes began.
const (
	quickInterval = 100 * time.Millisecond
	// quickShare divides the time since the target's probes began: the interval is a tenth of
	// it.
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

// probeSooner moves the next probe of an unproven target forward. All unproven targets together get
// at most about atOnce probes per quickInterval: there may be thousands of dead ones after a start.
func (m *Monitor) probeSooner(t *target, now, begun time.Time) {
	interval := max(quickInterval*time.Duration(1+m.unproven/atOnce), now.Sub(t.begun)/quickShare)
	at := begun.Add(interval)
	if at.Before(now) {
		at = now
	}
	if at.Before(t.phase) {
		t.phase = at
		m.schedule(t, at)
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
		m.schedule(t, t.phase)
		return
	}
	if t.failures == t.Probe.Fall {
		m.addChanged(t) // from now on, Down is confirmed
	}
	m.probeSooner(t, now, begun)
}
