package desired_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"loxilb/internal/control/store"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

func endpoint(i int) lb.EndpointProbe {
	return lb.EndpointProbe{
		Addr:  netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}),
		Probe: lb.Probe{Type: lb.ProbeHTTP, Port: 80, Request: "/x", Interval: time.Second, Statuses: []lb.StatusRange{{First: 200, Last: 299}}},
	}
}

// TestEndpoints checks that endpoints are stored and found, and changed only by their owner.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	s := open(t, dir)
	put := func(e lb.EndpointProbe) func(tx *store.Tx) error {
		return func(tx *store.Tx) error { return s.Endpoints.Put(tx, e) }
	}
	mustCommit(t, s, "rest", put(endpoint(1)))
	named := endpoint(2)
	named.Name = "mine"
	mustCommit(t, s, "rest", put(named))
	if _, changed, err := s.Commit("rest", put(endpoint(1))); err != nil || len(changed) > 0 {
		t.Errorf("the same again changes %v, %v", changed, err)
	}
	if _, _, err := s.Commit("other", put(named)); !errors.Is(err, store.ErrOwner) {
		t.Errorf("another owner: %v", err)
	}
	bad := endpoint(3)
	bad.Probe.Port = 0
	var field *lb.FieldError
	if _, _, err := s.Commit("rest", put(bad)); !errors.As(err, &field) || field.Field != lb.FieldProbePort {
		t.Errorf("without a port: %v", err)
	}
	for range 2 { // first from the journal, then from a snapshot
		closeState(t, s)
		s = open(t, dir)
		if got, ok := s.Endpoints.Get(s.Snapshot(), "mine"); !ok || got.Name != "mine" || len(got.Probe.Statuses) != 1 || s.Endpoints.Len(s.Snapshot()) != 2 {
			t.Errorf("after a start: %+v", got)
		}
	}
	mustCommit(t, s, "rest", func(tx *store.Tx) error { return s.Endpoints.Delete(tx, "mine") })
	if _, _, err := s.Commit("rest", func(tx *store.Tx) error { return s.Endpoints.Delete(tx, "mine") }); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("deleted twice: %v", err)
	}
}

// TestDowngradeWithoutProbes checks that the older loxilb reads everything once no probes are left,
// and before that keeps what it does not know.
func TestDowngradeWithoutProbes(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	s := open(t, dir)
	const plain = "10.0.0.1:80/tcp mode=default select=rr endpoints=192.168.1.10:80"
	mustCommit(t, s, "rest", put(s, service(t, plain+" monitor=true probetype=http probereq=/x")))
	mustCommit(t, s, "rest", func(tx *store.Tx) error { return s.Endpoints.Put(tx, endpoint(1)) })
	closeState(t, s)
	s = open(t, dir)
	if got := dump(s); !strings.Contains(got, "monitor=true probetype=http probereq=/x") {
		t.Errorf("after a start: %s", got)
	}
	mustCommit(t, s, "rest", put(s, service(t, plain)))
	mustCommit(t, s, "rest", func(tx *store.Tx) error { return s.Endpoints.Delete(tx, "10.1.0.1_http_80") })
	closeState(t, s)
	s = open(t, dir)
	revision, services := olderLoad(t, dir)
	if revision != s.Snapshot().Revision() || len(services) != 1 {
		t.Errorf("revision %d, %v", revision, services)
	}
	_, object, err := lb.NewSchema().MarshalRecord(service(t, plain))
	if err != nil {
		t.Fatal(err)
	}
	if want := "rest " + string(object); services["10.0.0.1:80/tcp"] != want {
		t.Errorf("the stored service is %s, want %s", services["10.0.0.1:80/tcp"], want)
	}
}

// TestTooManyEndpoints checks that their number is bounded, and that deleting one makes room for
// another.
func TestTooManyEndpoints(t *testing.T) {
	t.Parallel()
	s := open(t, "")
	many := func(from, to int) func(tx *store.Tx) error {
		return func(tx *store.Tx) error {
			for i := from; i < to; i++ {
				e := endpoint(i)
				e.Name = fmt.Sprint("e", i)
				if err := s.Endpoints.Put(tx, e); err != nil {
					return err
				}
			}
			return nil
		}
	}
	mustCommit(t, s, "rest", many(0, kinds.Endpoint().Stored.Max))
	if _, _, err := s.Commit("rest", many(kinds.Endpoint().Stored.Max, kinds.Endpoint().Stored.Max+1)); !errors.Is(err, store.ErrLimit) {
		t.Errorf("one more: %v", err)
	}
	mustCommit(t, s, "rest", func(tx *store.Tx) error { return s.Endpoints.Delete(tx, "e0") })
	mustCommit(t, s, "rest", many(kinds.Endpoint().Stored.Max, kinds.Endpoint().Stored.Max+1))
}
