package election

import (
	"testing"
	"time"

	"loxilb/internal/lb"
)

// TestWaitsForSession checks that a node that hears its peer before the session is up still listens
// for as long as any node that starts, and that it decides with the packet that ends the wait.
func TestWaitsForSession(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	m := NewMachine(Rank{Priority: 100}, lb.RoleUnknown, Lease{}, now)
	m.Heard(false, true, Entry{Claim: Backup, Priority: 1}, 0, detection, now)
	m.Lost(false, now.Add(detection))
	if role, why := m.Role(); role != lb.RoleBackup {
		t.Errorf("the node becomes %s before %s have passed: %s", role, StartWait, why)
	}
	m.Heard(true, true, Entry{Claim: Backup, Priority: 1}, 0, detection, now.Add(2*detection))
	if role, why := m.Role(); role != lb.RoleMaster {
		t.Errorf("a node that outranks its peer is %s: %s", role, why)
	}
}

// TestNewRank checks that a changed priority counts at once.
func TestNewRank(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	m := NewMachine(Rank{Priority: 1}, lb.RoleUnknown, Lease{}, now)
	m.Heard(true, true, Entry{Claim: Backup, Priority: 100}, 0, detection, now)
	if role, why := m.Role(); role != lb.RoleBackup {
		t.Fatalf("a node of lower priority than the MASTER is %s: %s", role, why)
	}
	m.SetRank(Rank{Priority: 200}, now)
	if role, why := m.Role(); role != lb.RoleMaster || m.Claim(now).Priority != 200 {
		t.Errorf("after the change the node is %s, of priority %d: %s", role, m.Claim(now).Priority, why)
	}
}
