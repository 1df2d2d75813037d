package balancer

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// TestBusyBalancer checks that a balancer which answers all changes with a server error stays
// MASTER, gets one request per round however many Services wait, and that none of them counts as
// refused.
func TestBusyBalancer(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusTooManyRequests} {
		busy, other := newRemote(t, nil, plain), newRemote(t, nil, plain)
		f := newFleet(t, Options{Roles: Roles{VIP: netip.IPv4Unspecified(), Instances: 1}}, Access{}, busy, other)
		goes, desired := numbered(0, 1)
		f.Set(goes, desired)
		f.Complete()
		if err := f.round(t); err != nil {
			t.Fatal(err)
		}
		elected := newElection()
		elected.masters["llb-inst0"] = busy.URL
		f.electOnce(t.Context(), elected)

		busy.changeStatus.Store(int32(status))
		for i := 1; i < 100; i++ {
			f.Set(numbered(i, 1))
		}
		f.Delete(goes)
		before := busy.applied.Load()
		for range 3 {
			_ = f.round(t)
			f.electOnce(t.Context(), elected)
		}
		if n := busy.applied.Load() - before; n != 3 {
			t.Errorf("with answers %d, there were %d requests for changes in 3 rounds, want 3", status, n)
		}
		one, _ := numbered(1, 1)
		if s := f.State(one); len(s.Errors) > 0 || s.Reachable != 2 || !s.Programmed || !strings.Contains(s.Problem, "the store is away") {
			t.Errorf("with answers %d, the state of a Service is %+v", status, s)
		}
		if f.Gone(goes) {
			t.Errorf("with answers %d, a Service that the balancer still has is gone", status)
		}
		if got := masters(t, f, []*remote{busy, other}); got != "0:0" {
			t.Errorf("with answers %d, the MASTERs are %q", status, got)
		}
		busy.changeStatus.Store(0)
		if err := f.round(t); err != nil || busy.names() != other.names() || !f.Gone(goes) || f.State(one).Problem != "" {
			t.Errorf("after answers %d and its recovery, the balancer differs: %v", status, err)
		}
	}
}

// TestRefusedAgain checks that a Service stays refused while a balancer's services are read, and is
// sent again afterwards: the reason may be gone.
func TestRefusedAgain(t *testing.T) {
	t.Parallel()
	r := newRemote(t, nil, plain)
	f := newFleet(t, Options{}, Access{}, r)
	name, desired := numbered(1, 1)
	f.Set(name, desired)
	r.refuse(func(string) int { return http.StatusBadRequest })
	if err := f.round(t); err != nil {
		t.Fatal(err)
	}
	m := f.members[r.URL]
	v := f.view("")
	if list := m.toPut(&v); len(list) != 0 {
		t.Errorf("a service that was refused just now is put again")
	}
	if err := m.list(t.Context(), &v); err != nil {
		t.Fatal(err)
	}
	if state := f.State(name); len(state.Errors) != 1 {
		t.Errorf("after its services were read, the balancer refuses %v, want 1", state.Errors)
	}
	if list := m.toPut(&v); len(list) != 1 {
		t.Errorf("%d services are put, want the refused one", len(list))
	}
}
