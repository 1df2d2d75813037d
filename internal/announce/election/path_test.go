package election

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"loxilb/internal/announce/bfd"
	"loxilb/internal/lb"
)

// noGuard keeps no lease.
type noGuard struct{}

func (noGuard) Own(string, time.Time) {}
func (noGuard) Keep([]string)         {}
func (noGuard) Record(Lease)          {}
func (noGuard) Recorded() (l Lease)   { return l }

// TestOldClaims checks that a MASTER does not yield to packets that its peer sent while the session
// was up, and that waited for the link since.
func TestOldClaims(t *testing.T) {
	t.Parallel()
	m := NewManager(noGuard{}, func(f func() error) error { return f() }, func() bool { return false })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	m.Run(ctx) // ends at once: the test hears in place of the session
	remote := netip.MustParseAddr("192.0.2.2")
	m.Set([]Session{{Key: "k", Instance: lb.DefaultInstance, Priority: 1, Path: bfd.Config{Remote: remote, Interval: time.Second, Multiplier: 3}}},
		map[string]lb.Role{lb.DefaultInstance: lb.RoleMaster})
	role := func() lb.Role { return m.Roles()[lb.DefaultInstance].Role }
	if role() != lb.RoleMaster {
		t.Fatalf("it begins as %s", role())
	}
	claims := (&Message{Entries: []Entry{{Instance: InstanceHash(lb.DefaultInstance), Claim: Master, Priority: 200}}}).Append(nil)
	p := m.elections[lb.DefaultInstance].path
	p.Lost(bfd.Status{State: bfd.Down})
	p.Heard(bfd.Status{State: bfd.Down, Remote: bfd.Up}, claims)
	if role() != lb.RoleMaster {
		t.Errorf("it yields to an old packet: %s", m.Roles()[lb.DefaultInstance].Why)
	}
	p.Heard(bfd.Status{State: bfd.Init, Remote: bfd.Down}, claims)
	if role() != lb.RoleBackup {
		t.Error("it does not yield to a peer of higher priority")
	}
}
