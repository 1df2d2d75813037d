package balancer

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"loxilb/internal/control/status"
)

// TestUnapplied checks that a Service which a balancer has stored counts as refused while its data
// path lacks it, although the balancer accepts it when it is sent again. Others do not. While the
// balancer does not report which services its data path lacks, it counts as busy.
func TestUnapplied(t *testing.T) {
	t.Parallel()
	r := newRemote(t, nil, plain)
	f := newFleet(t, Options{}, Access{}, r)
	good, desired := numbered(0, 1)
	f.Set(good, desired)
	bad, desired := numbered(1, 1)
	f.Set(bad, desired)
	f.Complete()
	id := status.ID{Kind: "service", Key: desired.Common[0].Key}
	why := errors.New("no room is left")
	r.Fake.Failed(id, 1, why, time.Now())
	r.Fake.ApplyErr = &status.Error{Failures: []status.Status{{ID: id, Err: why}}}
	if err := f.round(t); !isBusy(err) {
		t.Errorf("the first answer is %v, want that the balancer is busy", err)
	}
	r.Fake.ApplyErr = nil
	again := func() {
		t.Helper()
		for key, refusal := range f.members[r.URL].refused {
			refusal.at = refusal.at.Add(-retryRefused)
			f.members[r.URL].refused[key] = refusal
		}
		if err := f.round(t); err != nil {
			t.Fatal(err)
		}
	}
	r.readStatus.Store(http.StatusServiceUnavailable)
	if err := f.round(t); !isBusy(err) || f.State(bad).Programmed {
		t.Errorf("without statuses: %v, and the state is %+v, want that the balancer is busy", err, f.State(bad))
	}
	r.readStatus.Store(0)
	for range 2 {
		again()
		if s := f.State(bad); s.Programmed || !strings.Contains(s.Errors[id.Key], why.Error()) {
			t.Errorf("the data path lacks a service, and its state is %+v", s)
		}
		if s := f.State(good); !s.Programmed || len(s.Errors) > 0 {
			t.Errorf("the state of the other Service is %+v", s)
		}
	}
	r.Fake.Forget(id)
	again()
	if s := f.State(bad); !s.Programmed || len(s.Errors) > 0 {
		t.Errorf("the data path has it now, and the state is %+v", s)
	}
	r.Fake.Failed(id, 1, why, time.Now())
	f.members[r.URL].mayBeUnapplied = true
	f.members[r.URL].synced = false
	again()
	f.Delete(bad)
	again()
	if n := len(r.List()); n != 1 || !f.Gone(bad) {
		t.Errorf("after its deletion, the balancer has %d services, want the other one", n)
	}
}
