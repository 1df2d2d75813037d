package reconcile

import (
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"testing"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/event"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

// fakeTunnels counts flows and users.
type fakeTunnels struct {
	mu      sync.Mutex
	refused error // why the programs cannot be loaded
	flows   int
	users   int // users with routes
}

func (f *fakeTunnels) PrepareGTP() error { return f.refused }

func (f *fakeTunnels) SetGTP(flows []datapath.GTPFlow, _ datapath.GTPLinks) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flows = len(flows)
	return nil
}

func (f *fakeTunnels) MakeGTP(users []netdev.MobileUser) (near, far int, name string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.users = len(users)
	return 1, 2, "llbgtp0", nil
}

func (f *fakeTunnels) want(t *testing.T, flows int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.flows != flows {
		t.Errorf("%d classifiers in the data path, want %d", f.flows, flows)
	}
}

// newGTPRig returns a rig whose sessions and classifiers are applied to tunnels.
func newGTPRig(t *testing.T) (*objectRig, *fakeTunnels) {
	t.Helper()
	state, err := desired.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = state.Close() })
	r := &objectRig{State: state, t: t, statuses: status.NewTable()}
	f := &fakeTunnels{}
	r.run(NewGTP(state, f, f, Observers{Statuses: r.statuses, Events: event.NewHub(), Log: slog.New(slog.DiscardHandler)}).Run)
	return r, f
}

// TestClassifierWithoutPrograms checks that packets to users keep their routes on a machine that
// cannot put them into tunnels.
func TestClassifierWithoutPrograms(t *testing.T) {
	t.Parallel()
	r, f := newGTPRig(t)
	f.refused = errors.New("no programs")
	end := lb.TunnelEnd{TEID: 1, Addr: netip.MustParseAddr("10.10.10.56")}

	r.commit(func(tx *store.Tx) error {
		s := lb.Session{Name: "user1", User: netip.MustParseAddr("88.88.88.88"), Access: end, Core: end}
		if err := r.Sessions.Put(tx, s); err != nil {
			return err
		}
		return r.SessionFlows.Put(tx, lb.SessionFlow{Session: "user1", Peer: netip.MustParseAddr("192.168.33.1")})
	})
	r.want(kinds.SessionFlowName, "user1/192.168.33.1", "no programs")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users != 0 {
		t.Errorf("%d users have routes to interfaces without programs, want 0", f.users)
	}
}

// TestClassifierWithoutSession checks that the status of a classifier reports a session that does
// not exist, until it does.
func TestClassifierWithoutSession(t *testing.T) {
	t.Parallel()
	r, f := newGTPRig(t)
	peer, user := netip.MustParseAddr("192.168.33.1"), netip.MustParseAddr("88.88.88.88")
	tunnel := func(addr string) lb.TunnelEnd { return lb.TunnelEnd{TEID: 1, Addr: netip.MustParseAddr(addr)} }

	r.commit(func(tx *store.Tx) error { return r.SessionFlows.Put(tx, lb.SessionFlow{Session: "user1", Peer: peer}) })
	r.want(kinds.SessionFlowName, "user1/192.168.33.1", `session "user1" does not exist`)
	f.want(t, 0)
	if s, _ := r.statuses.Get(status.ID{Kind: kinds.SessionFlowName, Key: "user1/192.168.33.1"}); !s.Next.IsZero() {
		t.Errorf("the flow is tried again at %v: thousands of them would keep a core busy", s.Next)
	}
	r.commit(func(tx *store.Tx) error {
		return r.Sessions.Put(tx, lb.Session{Name: "user1", User: user, Access: tunnel("10.10.10.56"), Core: tunnel("10.10.10.59")})
	})
	r.want(kinds.SessionFlowName, "user1/192.168.33.1", "")
	f.want(t, 1)
	r.commit(func(tx *store.Tx) error {
		return r.SessionFlows.Put(tx, lb.SessionFlow{Session: "user1", Peer: netip.MustParseAddr("2001:db8::1")})
	})
	r.want(kinds.SessionFlowName, "user1/2001:db8::1", "of different IP versions")
	f.want(t, 1)
	r.commit(func(tx *store.Tx) error { return r.Sessions.Delete(tx, "user1") })
	r.want(kinds.SessionFlowName, "user1/192.168.33.1", `session "user1" does not exist`)
	f.want(t, 0)
}

// TestClassifierOfTwoSessions checks that the status of a classifier names another session of the
// same user that has the packets, as long as that has a classifier.
func TestClassifierOfTwoSessions(t *testing.T) {
	t.Parallel()
	r, f := newGTPRig(t)
	peer, user := netip.MustParseAddr("192.168.33.1"), netip.MustParseAddr("88.88.88.88")
	end := func(teid uint32) lb.TunnelEnd {
		return lb.TunnelEnd{TEID: teid, Addr: netip.MustParseAddr("10.10.10.56")}
	}

	r.commit(func(tx *store.Tx) error {
		for i, name := range []string{"a", "b"} {
			if err := r.Sessions.Put(tx, lb.Session{Name: name, User: user, Access: end(uint32(i + 1)), Core: end(uint32(i + 1))}); err != nil {
				return err
			}
		}
		return r.SessionFlows.Put(tx, lb.SessionFlow{Session: "b", Peer: peer})
	})
	r.want(kinds.SessionFlowName, "b/192.168.33.1", "")
	r.commit(func(tx *store.Tx) error { return r.SessionFlows.Put(tx, lb.SessionFlow{Session: "a", Peer: peer}) })
	r.want(kinds.SessionFlowName, "a/192.168.33.1", "")
	r.want(kinds.SessionFlowName, "b/192.168.33.1", `belong to session "a"`)
	f.want(t, 1)
	r.commit(func(tx *store.Tx) error { return r.SessionFlows.Delete(tx, "a/192.168.33.1") })
	r.want(kinds.SessionFlowName, "b/192.168.33.1", "")
	f.want(t, 1)
}
