package balancer

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"loxilb/kube/internal/translate"
	"loxilb/test/await"
)

// TestHangingBalancer checks that a balancer which does not answer requests about roles delays an
// election once, not once per instance.
func TestHangingBalancer(t *testing.T) {
	t.Parallel()
	hangs, other := newRemote(t, nil, plain), newRemote(t, nil, plain)
	const instances = 16
	f := newFleet(t, Options{Roles: Roles{VIP: netip.IPv4Unspecified(), Instances: instances}}, Access{}, hangs, other)
	if err := f.round(t); err != nil {
		t.Fatal(err)
	}
	hangs.hangsOnRoles.Store(true)
	began := time.Now()
	f.electOnce(t.Context(), newElection())
	if took := time.Since(began); took > 4*pollTimeout { // one request reads its roles, another one sets a role
		t.Errorf("the election took %v", took)
	}
	got := 0
	for _, one := range other.Store.Instances.OfThisNode(other.Store.Snapshot()) {
		if one.Role == master {
			got++
		}
	}
	if want := instances / 2; got != want {
		t.Errorf("the balancer that answers is MASTER of %d instances, want %d", got, want)
	}
}

// TestLargeServices checks that requests stay small enough to be read in time.
func TestLargeServices(t *testing.T) {
	t.Parallel()
	r := newRemote(t, nil, plain)
	f := newFleet(t, Options{}, Access{}, r)
	pad := func(d Desired, size int) Desired { // spaces change only the size
		d.Common[0].Spec = append(d.Common[0].Spec, strings.Repeat(" ", size)...)
		return d
	}
	const count = 10
	for i := range count {
		name, desired := numbered(i, 1)
		f.Set(name, pad(desired, maxSpecBytes*2/5))
	}
	f.Complete()
	if err := f.round(t); err != nil {
		t.Fatal(err)
	}
	if got := r.applied.Load(); got != count/2 {
		t.Errorf("there were %d requests, want %d", got, count/2)
	}
	if n := len(r.List()); n != count {
		t.Errorf("the balancer has %d services, want %d", n, count)
	}
}

// TestGone checks 5,000 deleted Services, as the controller does five times a second for each. The
// log has the time that it takes.
func TestGone(t *testing.T) {
	t.Parallel()
	const count = 5000
	r := newRemote(t, nil, plain)
	f := newFleet(t, Options{}, Access{}, r)
	m := f.members[r.URL]
	m.tried, m.reachable = true, true
	var names []types.NamespacedName
	for i := range count {
		name, desired := numbered(i, 1)
		names = append(names, name)
		for port := range 3 {
			m.existing.put(fmt.Sprint(desired.Common[0].Key, port), storedService{service: name})
		}
	}
	began := time.Now()
	for i, name := range names {
		if f.Gone(name) {
			t.Fatalf("%s is gone", name)
		}
		for port := range 3 {
			key := fmt.Sprint(translate.KeyOf(netip.AddrFrom4([4]byte{20, 20, byte(i >> 8), byte(i)}), 80, "TCP"), port)
			if got := m.existing.remove(key); got != name {
				t.Fatalf("%s belonged to %s, want %s", key, got, name)
			}
		}
		if !f.Gone(name) {
			t.Fatalf("%s is not gone", name)
		}
	}
	if len(m.existing.entries)+len(m.existing.services) > 0 {
		t.Errorf("%d entries of %d Services are left", len(m.existing.entries), len(m.existing.services))
	}
	t.Logf("%d Services in %v", count, time.Since(began).Round(time.Millisecond))
}

// TestSlowChanges checks that a balancer which answers polls, but not changes in time, counts as
// answering, and that a balancer which hangs while it receives services is noticed soon.
func TestSlowChanges(t *testing.T) {
	t.Parallel()
	r := newRemote(t, nil, plain)
	f := newFleet(t, Options{}, Access{}, r)
	m := f.members[r.URL]
	if err := f.round(t); err != nil {
		t.Fatal(err)
	}
	service, desired := numbered(1, 1)
	f.Set(service, desired)
	r.hangsOnChange.Store(true)
	m.Client.http.Timeout = 3 * pollInterval / 2
	if err := f.round(t); !isBusy(err) || !m.answers() || !m.synced {
		t.Errorf("a balancer that is slow: %v, answers %v", err, m.answers())
	}

	m.Client.http.Timeout = requestTimeout
	ended := make(chan error)
	began := time.Now()
	go func() {
		_, err := m.sync(t.Context())
		ended <- err
	}()
	await.True(t, requestTimeout, "it gets a service", func() bool { return r.waiting.Load() > 0 })
	r.dead.Store(true)
	err := <-ended
	if took := time.Since(began); took > requestTimeout/2 {
		t.Errorf("a balancer that hangs is noticed after %v", took)
	}
	if m.recordSync(t.Context(), err); isBusy(err) || !errors.Is(err, errHangs) || m.answers() {
		t.Errorf("a balancer that hangs: %v", err)
	}

	r.hangsOnChange.Store(false)
	r.dead.Store(false)
	if err := f.round(t); err != nil || r.names() != "default_s1:llb-inst0" {
		t.Errorf("after its return, the balancer has %q (%v)", r.names(), err)
	}
}
