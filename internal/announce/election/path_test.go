package election

import (
	"context"
	"errors"
	"net/netip"
	"slices"
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

// newListeningPath returns the path of a manager's only election, which the test calls in place of
// a BFD session, and a function for the role.
func newListeningPath(t *testing.T, stored lb.Role) (*path, func() lb.Role) {
	t.Helper()
	m := NewManager(noGuard{}, func(f func() error) error { return f() }, func() bool { return false })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	m.Run(ctx) // ends at once: the test hears in place of the session
	remote := netip.MustParseAddr("192.0.2.2")
	m.Set([]Session{{Key: "k", Instance: lb.DefaultInstance, Priority: 1, Path: bfd.Config{Remote: remote, Interval: time.Second, Multiplier: 3}}},
		map[string]lb.Role{lb.DefaultInstance: stored})
	return m.elections[lb.DefaultInstance].path, func() lb.Role { return m.Roles()[lb.DefaultInstance].Role }
}

// claimOfMaster returns the claim of a peer that is MASTER and has a higher priority.
func claimOfMaster() []byte {
	return (&Message{Entries: []Entry{{Instance: InstanceHash(lb.DefaultInstance), Claim: Master, Priority: 200}}}).Append(nil)
}

// TestPeerLeaves checks that a node takes over as soon as its peer takes the session down, and no
// lease counts that it sends before the session is up.
func TestPeerLeaves(t *testing.T) {
	t.Parallel()
	p, role := newListeningPath(t, lb.RoleBackup)
	p.Heard(bfd.Status{State: bfd.Up, Remote: bfd.Up}, claimOfMaster())
	if role() != lb.RoleBackup {
		t.Fatalf("the node is %s although another one is MASTER", role())
	}
	p.Heard(bfd.Status{State: bfd.Down, Remote: bfd.AdminDown}, claimOfMaster())
	if role() != lb.RoleMaster {
		t.Errorf("the node is %s although its peer has left", role())
	}
	lease := func() Lease { return p.manager.elections[lb.DefaultInstance].machine.Lease() }
	later := time.Now().Add(time.Minute)
	p.Sent(time.Now(), later, bfd.Down)
	if got := lease(); !got.Alone || got.Until.Equal(later) {
		t.Errorf("a packet of a session that is down extends the lease: %+v", got)
	}
	p.Sent(time.Now(), later, bfd.Up)
	if got := lease(); got.Alone || !got.Until.Equal(later) {
		t.Errorf("a packet does not extend the lease: %+v", got)
	}
}

// TestConnected checks that a node is connected if the interface of its address has a carrier.
func TestConnected(t *testing.T) {
	t.Parallel()
	p, _ := newListeningPath(t, lb.RoleBackup)
	for address, want := range map[string]bool{"127.0.0.1": true, "192.0.2.1": false} {
		if got := p.manager.connected(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
	}
}

// recorder is a guard that records its calls.
type recorder struct {
	noGuard
	owned    map[string]time.Time
	kept     []string
	recorded bool
}

func (r *recorder) Own(instance string, until time.Time) { r.owned[instance] = until }
func (r *recorder) Keep(instances []string)              { r.kept = instances }
func (r *recorder) Record(Lease)                         { r.recorded = true }

// TestEnd checks that the kernel answers for VIPs of instances that have no election, and stops
// answering for the others when a node ends that does not restart.
func TestEnd(t *testing.T) {
	t.Parallel()
	guard := &recorder{owned: map[string]time.Time{}}
	m := NewManager(guard, func(func() error) error { return errors.New("there is no network") }, func() bool { return false })
	m.Decline(true)
	path := bfd.Config{Remote: netip.MustParseAddr("127.0.0.2"), Interval: time.Second, Multiplier: 3}
	m.Set([]Session{{Key: "k", Instance: "blue", Priority: 1, Path: path}}, map[string]lb.Role{"blue": lb.RoleMaster})
	if !slices.Equal(guard.kept, []string{"blue"}) || guard.owned["blue"].IsZero() {
		t.Errorf("elected are %v, and the VIPs are owned until %v", guard.kept, guard.owned)
	}
	if got := m.elections["blue"].machine.Claim(time.Now()).Claim; got != Declines {
		t.Errorf("in maintenance, a new election claims %v", got)
	}
	guard.recorded = false
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m.Run(ctx)
	if until, ok := guard.owned["blue"]; !ok || !until.IsZero() || !guard.recorded {
		t.Errorf("at the end the VIPs are owned until %v; recorded: %v", until, guard.recorded)
	}
}

// TestRefusedDeclines checks that a node which nodes of the cluster refuse takes no role from its
// peer, says why, and takes part again once they do not, unless it is in maintenance.
func TestRefusedDeclines(t *testing.T) {
	t.Parallel()
	m := NewManager(noGuard{}, func(func() error) error { return errors.New("there is no network") }, func() bool { return false })
	path := bfd.Config{Remote: netip.MustParseAddr("127.0.0.2"), Interval: time.Second, Multiplier: 3}
	m.Set([]Session{{Key: "k", Instance: "blue", Priority: 200, Preempt: true, Path: path}}, map[string]lb.Role{"blue": lb.RoleBackup})
	machine := m.elections["blue"].machine
	hear := func() (lb.Role, string) {
		machine.Heard(true, true, Entry{Claim: Backup, Priority: 100}, 0, time.Second, time.Now())
		return machine.Role()
	}
	m.SetCluster(true, true)
	if role, why := hear(); role != lb.RoleBackup || why != "nodes of the cluster refuse this one" || machine.Claim(time.Now()).Claim != Declines {
		t.Errorf("a refused node is %s: %s", role, why)
	}
	m.Decline(true)
	m.SetCluster(false, false)
	if role, why := hear(); role != lb.RoleBackup || why != "maintenance" {
		t.Errorf("in maintenance, it is %s: %s", role, why)
	}
	m.SetCluster(true, false)
	machine.Heard(true, true, Entry{Claim: Master, Priority: 100}, 0, time.Second, time.Now())
	m.Decline(false)
	if got := machine.Claim(time.Now()).Claim; got != Backup {
		t.Errorf("a node that lacks connections of others claims %v", got)
	}
	m.SetCluster(false, false)
	if got := machine.Claim(time.Now()).Claim; got != Preempts {
		t.Errorf("a node that has them claims %v", got)
	}
	if role, why := hear(); role != lb.RoleMaster {
		t.Errorf("a node that nobody refuses is %s: %s", role, why)
	}
}

// TestOldClaims checks that a MASTER does not yield to packets that its peer sent while the session
// was up, and that waited for the link since.
func TestOldClaims(t *testing.T) {
	t.Parallel()
	p, role := newListeningPath(t, lb.RoleMaster)
	if role() != lb.RoleMaster {
		t.Fatalf("the node begins as %s, want MASTER", role())
	}
	p.Lost(bfd.Status{State: bfd.Down})
	p.Heard(bfd.Status{State: bfd.Down, Remote: bfd.Up}, claimOfMaster())
	if role() != lb.RoleMaster {
		t.Errorf("the node yields to an old packet: %s", p.manager.Roles()[lb.DefaultInstance].Why)
	}
	p.Heard(bfd.Status{State: bfd.Init, Remote: bfd.Down}, claimOfMaster())
	if role() != lb.RoleBackup {
		t.Error("the node does not yield to a peer of higher priority")
	}
}
