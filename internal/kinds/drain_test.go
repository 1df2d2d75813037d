package kinds_test

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

// TestDrainByUptime checks that a stored deadline does not depend on the wall clock until the
// machine reboots.
func TestDrainByUptime(t *testing.T) {
	t.Parallel()
	deadline := time.Now().Add(time.Minute)
	_, object, err := kinds.Drain().Stored.Encode(lb.Drain{Addr: netip.MustParseAddr("192.0.2.1"), Rate: 1, Deadline: deadline})
	if err != nil {
		t.Fatal(err)
	}
	var stored map[string]any
	if err := json.Unmarshal(object, &stored); err != nil {
		t.Fatal(err)
	}
	stored["deadline"] = deadline.AddDate(50, 0, 0) // as if the clock were 50 years slow
	if object, err = json.Marshal(stored); err != nil {
		t.Fatal(err)
	}
	d, err := kinds.Drain().Stored.Decode(2, object)
	if err != nil || d.Deadline.Sub(deadline).Abs() > time.Second {
		t.Errorf("%+v, %v: want %v", d, err, deadline)
	}
}

// TestMaintenanceByUptime checks that the deadline of a node's drain does not depend on the wall
// clock after it was read.
func TestMaintenanceByUptime(t *testing.T) {
	t.Parallel()
	kind := kinds.Maintenance().Stored
	deadline := time.Now().Add(time.Minute)
	_, object, err := kind.Encode(lb.Maintenance{Deadline: deadline})
	if err != nil {
		t.Fatal(err)
	}
	m, err := kind.Decode(1, object)
	if err != nil || !sameDeadline(m.Deadline, deadline) || m.Deadline == m.Deadline.Round(0) {
		t.Errorf("%+v, %v: want %v with a monotonic reading", m, err, deadline)
	}
}

// sameDeadline reports whether drains that differ in their deadlines are equal.
func sameDeadline(a, b time.Time) bool {
	return kinds.Drain().Stored.Equal(lb.Drain{Deadline: a}, lb.Drain{Deadline: b})
}

// TestSameDeadline checks that two readings of one deadline are equal, even on both sides of a
// millisecond boundary.
func TestSameDeadline(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 2, 3, 4, 5, 499_000, time.UTC)
	for _, c := range []struct {
		a, b time.Time
		same bool
	}{
		{at, at.Add(2 * time.Microsecond), true}, // 0.499 and 0.501 ms, rounded, would differ
		{at, at.Round(time.Millisecond), true},
		{at, at.Add(-time.Second), false},
		{at, at.Add(time.Second), false},
		{at, time.Time{}, false},
		{time.Time{}, at, false},
		{time.Time{}, time.Time{}, true},
		{at, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), false},
	} {
		if got := sameDeadline(c.a, c.b); got != c.same {
			t.Errorf("%v and %v are the same: %v", c.a, c.b, got)
		}
	}
}
