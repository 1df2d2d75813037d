package reconcile

import (
	"net/netip"
	"slices"
	"testing"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// TestFailedChangeKeepsAddresses checks that the node keeps the former addresses of a service, and
// does not own the new ones, until the data path accepts the change.
func TestFailedChangeKeepsAddresses(t *testing.T) {
	t.Parallel()
	r := newRig(t, newFakeKernel(), "10.0.0.1:80/tcp secips=10.0.0.8 endpoints=192.168.1.1:80")
	r.drainEvents()
	r.failOn("put 10.0.0.1:80/tcp", errBroken)
	if err := r.result(r.put("10.0.0.1:80/tcp secips=10.0.0.9 endpoints=192.168.1.1:80")); err == nil {
		t.Error("no error")
	}
	r.wantVIPs("10.0.0.1", "10.0.0.8")
	r.failOn("", nil)
	r.eventually("applied", func() bool { s := r.status("service", "10.0.0.1:80/tcp"); return s.State() == status.Applied })
	r.wantVIPs("10.0.0.1", "10.0.0.9")

	r.failOn("delete 10.0.0.1:80/tcp", errBroken)
	if err := r.result(r.delete("10.0.0.1:80/tcp")); err == nil {
		t.Error("no error")
	}
	r.wantVIPs("10.0.0.1", "10.0.0.9")
	r.failOn("", nil)
	r.eventually("released", func() bool { return len(r.vips) == 0 })
}

// TestNewServiceThatFails checks that the VIP of a new service that fails is not announced.
func TestNewServiceThatFails(t *testing.T) {
	t.Parallel()
	r := newRig(t, newFakeKernel())
	r.failOn("put 10.0.0.1:80/tcp", errBroken)
	if err := r.result(r.put(web)); err == nil {
		t.Error("no error")
	}
	r.wantVIPs()
	r.wait(r.delete("10.0.0.1:80/tcp"))
	if list := r.statuses.List("service", false); len(list) > 0 {
		t.Errorf("got %+v, want none", list)
	}
}

// TestFailedRange checks that a deleted port range is removed even if a new range fails that begins
// at the same port and would use its row.
func TestFailedRange(t *testing.T) {
	t.Parallel()
	const narrow, wide = "10.0.0.1:80-90/tcp endpoints=192.168.1.1:80", "10.0.0.1:80-99/tcp endpoints=192.168.1.1:80"
	r := newRig(t, newFakeKernel(), narrow)
	row := compile.Key(key(t, "10.0.0.1:80-90/tcp"))
	if row != compile.Key(key(t, "10.0.0.1:80-99/tcp")) {
		t.Fatal("the services do not share a row")
	}
	r.drainEvents()
	r.failOn("put "+row.String(), errBroken)
	c := r.commit(func(tx *store.Tx) error {
		s, err := lb.ParseService(wide)
		if err != nil {
			return err
		}
		if err := r.state.Services.Delete(tx, key(t, "10.0.0.1:80-90/tcp")); err != nil {
			return err
		}
		return r.state.Services.Put(tx, s)
	})
	if err := r.result(c); err == nil {
		t.Error("no error")
	}
	r.eventually("the row is gone", func() bool { return !r.fakeKernel.services[row] })
	r.failOn("", nil)
	r.eventually("the row is there", func() bool { return r.fakeKernel.services[row] })
}

// TestAddressOfDeletedService checks that an address is released when its service is deleted, even
// if the owner failed to acquire it: the owner retries by itself until then.
func TestAddressOfDeletedService(t *testing.T) {
	t.Parallel()
	r := newRig(t, newFakeKernel())
	r.failOn("acquire [10.0.0.1]", errBroken)
	if err := r.result(r.put(web)); err == nil {
		t.Error("no error")
	}
	r.wait(r.delete("10.0.0.1:80/tcp"))
	if events := r.drainEvents(); !slices.Contains(events, "release [10.0.0.1]") {
		t.Errorf(`got %q, want "release [10.0.0.1]" in events`, events)
	}
}

// TestAddressIsWantedAgain checks that an address that could not be released is owned again, and
// that its status is gone.
func TestAddressIsWantedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, newFakeKernel(), web)
	r.failOn("release [10.0.0.1]", errBroken)
	r.wait(r.delete("10.0.0.1:80/tcp"))
	r.eventually("the failed release has a status", func() bool { s := r.status(vipKind, "10.0.0.1"); return s.State() == status.Failed })
	r.drainEvents()
	r.wait(r.put(web))
	r.eventually("owned again", func() bool { return slices.Contains(r.events, "acquire [10.0.0.1]") })
	if list := r.statuses.List(vipKind, false); len(list) > 0 {
		t.Errorf("got %+v, want none", list)
	}
}

// TestStartKeepsAddresses checks that the VIP of a service in the data path from an earlier process
// stays until the service is deleted, although the service cannot be applied again.
func TestStartKeepsAddresses(t *testing.T) {
	t.Parallel()
	w := newFakeKernel()
	for _, a := range []string{"10.0.0.1", "10.0.0.9"} {
		w.vips[netip.MustParseAddr(a)] = true
	}
	w.services[compile.Key(key(t, "10.0.0.1:80/tcp"))] = true
	r := newStoppedRig(t, w)
	r.failOn("put 10.0.0.1:80/tcp", errBroken)
	r.put(web)
	r.start()
	r.eventually("the other VIP is released", func() bool { return len(r.vips) == 1 })
	r.wantVIPs("10.0.0.1")
	r.wait(r.delete("10.0.0.1:80/tcp"))
	r.eventually("released", func() bool { return len(r.vips) == 0 })
}

// wantVIPs checks that exactly these VIPs are owned.
func (r *rig) wantVIPs(want ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var got []string
	for a, owned := range r.vips {
		if owned {
			got = append(got, a.String())
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		r.t.Errorf("owned: %v, want %v", got, want)
	}
}
