package reconcile

import (
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/event"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
)

// attachedRig has the loops of policers and mirrors, a store in memory, and a fake data path.
type attachedRig struct {
	*desired.State
	t        *testing.T
	table    *fakeAttacher
	attached *Attached
	policers *Policers
	mirrors  *Mirrors
	onTap    func() // called by MakeTap unless nil
}

func (r *attachedRig) MakeTap(netdev.Tap) error {
	if r.onTap != nil {
		r.onTap()
	}
	return nil
}

func (r *attachedRig) KeepTaps(func(string) bool) error { return nil }

func newAttachedRig(t *testing.T) *attachedRig {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	state, err := desired.Open("", log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = state.Close() })
	r := &attachedRig{State: state, t: t, table: &fakeAttacher{}}
	r.attached = NewAttached(state, r.table, func() []netdev.Link { return nil })
	o := Observers{Statuses: status.NewTable(), Events: event.NewHub(), Log: log}
	r.policers, r.mirrors = NewPolicers(state, r.attached, o), NewMirrors(state, r.attached, r, o)
	return r
}

func (r *attachedRig) commit(edit func(*store.Tx) error) {
	r.t.Helper()
	if _, _, err := r.State.Commit("test", edit); err != nil {
		r.t.Fatal(err)
	}
}

// toWeb returns a policer that is attached to all services of the name web.
func toWeb(name string) policy.Policer {
	rate := policy.Rate{PerSecond: 1e6}
	return policy.Policer{
		Name: name, Committed: rate, Peak: rate, Attachment: policy.Attachment{To: policy.AttachService, Name: "web"},
	}.Normal()
}

// TestAttachedToNewServices checks that policers are due after each new service, also if it is
// created while the loop handles an unrelated change.
func TestAttachedToNewServices(t *testing.T) {
	t.Parallel()
	r := newAttachedRig(t)
	l := r.policers.Loop
	l.together = true
	var services []uint64 // revisions
	created := make(chan struct{})
	go func() {
		defer close(created)
		for n := range 1000 {
			_, _, _ = r.Commit("test", func(tx *store.Tx) error { return r.Policers.Put(tx, toWeb(strconv.Itoa(n))) })
			service := lb.Service{Key: lb.Key{VIP: netip.MustParseAddr("10.0.0.1"), Port: uint16(n + 1), Protocol: lb.TCP}}
			service.Endpoints = []lb.Endpoint{{Addr: netip.MustParseAddr("192.168.1.1"), Port: 80, Weight: 1}}
			revision, _, err := r.Commit("test", func(tx *store.Tx) error { return r.Services.Put(tx, service) })
			if err != nil {
				t.Error(err)
			}
			services = append(services, revision)
		}
	}()
	due := map[uint64]bool{} // revisions after which everything was due, by the last revision of a feed
	var fed []uint64
	for over := false; !over; {
		select {
		case <-created:
			over = true
		default:
		}
		l.feed(t.Context())
		fed = append(fed, r.policers.seen)
		due[r.policers.seen] = due[r.policers.seen] || slices.Contains(l.nextBatch(time.Now()), allObjects)
	}
	for _, revision := range services {
		i, _ := slices.BinarySearch(fed, revision) // the first feed that knows it
		if i == len(fed) || !due[fed[i]] {
			t.Fatalf("policers are not due after the service of revision %d", revision)
		}
	}
}

// TestAttachedInOrder checks that a mirror that is applied does not undo a policer that is created
// meanwhile.
func TestAttachedInOrder(t *testing.T) {
	t.Parallel()
	r := newAttachedRig(t)
	r.commit(func(tx *store.Tx) error {
		m := policy.Mirror{
			Name: "m", Type: policy.ERSPAN, Remote: netip.MustParseAddr("10.0.0.2"), Source: netip.MustParseAddr("10.0.0.1"), TunnelID: 1,
			Attachment: policy.Attachment{To: policy.AttachPort, Name: "eth0"},
		}
		return r.Mirrors.Put(tx, m.Normal())
	})
	r.onTap = func() {
		r.commit(func(tx *store.Tx) error { return r.Policers.Put(tx, toWeb("a")) })
		r.policers.Apply(t.Context(), []string{"a"})
	}
	r.mirrors.Apply(t.Context(), []string{"m"})
	if _, exists := r.table.last.Policers["a"]; !exists {
		t.Error("the data path has lost the policer")
	}
}
