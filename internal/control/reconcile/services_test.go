package reconcile

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

const (
	web  = "10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80"
	web2 = "10.0.0.1:443/tcp endpoints=192.168.1.1:443"
	dns  = "10.0.0.2:53/udp endpoints=192.168.1.3:53"
)

var errBroken = errors.New("no memory")

// TestOrder checks that a VIP is acquired after its first service is applied, and released after
// its last service is removed, and that deletions precede additions.
func TestOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t, newFakeKernel())
	r.wait(r.put(web))
	r.wantEvents("put 10.0.0.1:80/tcp", "acquire [10.0.0.1]")
	r.wait(r.put(web2))
	r.wantEvents("put 10.0.0.1:443/tcp")
	r.wait(r.put(strings.Replace(web, "192.168.1.2", "192.168.1.9", 1)))
	r.wantEvents("put 10.0.0.1:80/tcp")
	r.wait(r.delete("10.0.0.1:80/tcp"))
	r.wantEvents("delete 10.0.0.1:80/tcp")
	r.wait(r.commit(func(tx *store.Tx) error {
		s, err := lb.ParseService(strings.Replace(dns, "10.0.0.2", "10.0.0.0", 1))
		return errors.Join(err, r.state.Services.Put(tx, s), r.state.Services.Delete(tx, key(t, "10.0.0.1:443/tcp")))
	}))
	r.wantEvents("delete 10.0.0.1:443/tcp", "put 10.0.0.0:53/udp", "release [10.0.0.1]", "acquire [10.0.0.0]")
	want := []string{"service 10.0.0.0:53/udp applied"}
	var got []string
	for _, s := range r.statuses.List(kinds.ServiceName, false) {
		got = append(got, s.String()+" "+string(s.State()))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestDeletionsFirst checks that deletions of a large change are in its first batch, whatever their
// keys: they make room for the rest.
func TestDeletionsFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t, newFakeKernel())
	const first, last = "10.0.0.1:80/tcp", "10.9.0.1:80/tcp"
	r.wait(r.put(first+" endpoints=192.168.1.1:80", last+" endpoints=192.168.1.1:80"))
	r.drainEvents()
	r.wait(r.commit(func(tx *store.Tx) error {
		for n := range batchSize {
			s, err := lb.ParseService(fmt.Sprintf("10.1.%d.%d:80/tcp endpoints=192.168.1.1:80", n/200, n%200))
			if err := errors.Join(err, r.state.Services.Put(tx, s)); err != nil {
				return err
			}
		}
		return errors.Join(r.state.Services.Delete(tx, key(t, last)), r.state.Services.Delete(tx, key(t, first)))
	}))
	want := []string{"delete " + first, "delete " + last}
	if got := r.drainEvents()[:2]; !slices.Equal(got, want) {
		t.Errorf("%q before all others, want %q", got, want)
	}
}

// TestStart checks that a start removes services that are not in the store from the data path, then
// applies all stored services, and finally releases the VIPs of an earlier process.
func TestStart(t *testing.T) {
	t.Parallel()
	w := newFakeKernel()
	for _, k := range []string{"10.0.0.1:80/tcp", "10.0.0.9:80/tcp"} {
		w.services[compile.Key(key(t, k))] = true
	}
	w.vips[netip.MustParseAddr("10.0.0.9")] = true
	r := newRig(t, w, web, dns)
	r.wantEvents("delete 10.0.0.9:80/tcp", "put 10.0.0.1:80/tcp", "put 10.0.0.2:53/udp", "acquire [10.0.0.1 10.0.0.2]")
	select {
	case <-r.ended:
	default:
		t.Error("Ended was not called")
	}
	r.eventually("the VIPs of the earlier process are released", func() bool {
		return len(r.vips) == 2 && !r.vips[netip.MustParseAddr("10.0.0.9")]
	})
}

// TestOrphansStay checks that rows of an earlier process that cannot be removed delay nothing.
func TestOrphansStay(t *testing.T) {
	t.Parallel()
	w := newFakeKernel()
	w.services[compile.Key(key(t, "10.0.0.9:80/tcp"))] = true
	r := newStoppedRig(t, w)
	r.failOn("delete 10.0.0.9:80/tcp", errBroken)
	c := r.put(web)
	r.start()
	r.wait(c)
	if s := r.status(TaskKind, "services of an earlier start"); s.State() != status.Failed {
		t.Errorf("got %+v, want state status.Failed", s)
	}
	r.failOn("", nil)
	r.eventually("tried again", func() bool { return len(w.services) == 1 })
}

// TestFailedServiceDelaysNoOther checks that only the status of a service that cannot be applied
// has the error, and that requests for other services, and for its removal, are answered at once.
//
// P9 A service that cannot be applied delays no other
func TestFailedServiceDelaysNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t, newFakeKernel())
	r.failOn("put 10.0.0.1:80/tcp", errBroken)
	both := r.put(web, dns)
	var failed *status.Error
	if err := r.result(both); !errors.As(err, &failed) || len(failed.Failures) != 1 || !errors.Is(failed.Failures[0].Err, errBroken) {
		t.Fatalf("got %v, want one failure, by errBroken", err)
	}
	if s := r.status("service", "10.0.0.1:80/tcp"); s.State() != status.Failed || s.Applied != 0 || s.Desired != both.revision {
		t.Errorf("got %+v, want state status.Failed, s.Applied == 0, s.Desired == both.revision", s)
	}
	r.wait(commit{both.revision, []status.ID{{Kind: "service", Key: "10.0.0.2:53/udp"}}})
	r.drainEvents()
	for n := range 20 {
		r.wait(r.put(fmt.Sprintf("10.0.2.%d:80/tcp endpoints=192.168.1.1:80", n)))
	}
	for _, e := range r.drainEvents() {
		if strings.HasSuffix(e, "10.0.0.2:53/udp") {
			t.Errorf("an applied service is applied again: %s", e)
		}
	}
	r.wait(r.delete("10.0.0.1:80/tcp"))
	if list := r.statuses.List("", true); len(list) != 0 {
		t.Errorf("got %+v, want none", list)
	}
}

// TestRetry checks that failed services are retried, at a start and later.
func TestRetry(t *testing.T) {
	t.Parallel()
	for _, atStart := range []bool{true, false} {
		r := newStoppedRig(t, newFakeKernel())
		r.failOn("put 10.0.0.2:53/udp", errBroken)
		var c commit
		if atStart {
			c = r.put(web, dns)
			r.start()
		} else {
			r.start()
			c = r.put(web, dns)
		}
		if failed := (*status.Error)(nil); !errors.As(r.result(c), &failed) || !errors.Is(failed.Failures[0].Err, errBroken) {
			t.Errorf("got %v, want a failure by errBroken", failed)
		}
		r.failOn("", nil)
		r.eventually("applied", func() bool { s := r.status("service", "10.0.0.2:53/udp"); return s.State() == status.Applied })
		n := 0
		for _, e := range r.drainEvents() {
			if e == "put 10.0.0.1:80/tcp" {
				n++
			}
		}
		if n != 1 {
			t.Errorf("the good service was applied %d times", n)
		}
	}
}

// TestRetryOfAddresses checks that services fail if their VIP could not be acquired, that a VIP
// that could not be released has a status of its own, and that both are retried.
func TestRetryOfAddresses(t *testing.T) {
	t.Parallel()
	r := newRig(t, newFakeKernel())
	vip := netip.MustParseAddr("10.0.0.1")
	r.failOn("acquire [10.0.0.1]", errBroken)
	if err := r.result(r.put(web)); err == nil || !strings.Contains(err.Error(), "acquire VIP 10.0.0.1: no memory") {
		t.Errorf(`got %v, want an error, "acquire VIP 10.0.0.1: no memory" in the error`, err)
	}
	r.failOn("", nil)
	r.eventually("owned", func() bool { return r.vips[vip] })
	r.eventually("applied", func() bool { s := r.status("service", "10.0.0.1:80/tcp"); return s.State() == status.Applied })

	r.failOn("release [10.0.0.1]", errBroken)
	r.wait(r.delete("10.0.0.1:80/tcp"))
	if s := r.status(vipKind, "10.0.0.1"); s.State() != status.Failed {
		t.Errorf("got %+v, want state status.Failed", s)
	}
	r.failOn("", nil)
	r.eventually("released", func() bool { return !r.vips[vip] })
	r.eventually("forgotten", func() bool { return len(r.statuses.List("", true)) == 0 })
}

// TestWaitForRoom checks that a change that finds no free rows waits until there are some.
func TestWaitForRoom(t *testing.T) {
	t.Parallel()
	r := newRig(t, newFakeKernel())
	failures := 1
	r.mu.Lock()
	r.fail = func(event string) error {
		if strings.HasPrefix(event, "put") && failures > 0 {
			failures--
			return fmt.Errorf("service x: %w", datapath.ErrFull)
		}
		return nil
	}
	r.mu.Unlock()
	r.wait(r.put(web))
	r.wantEvents("put 10.0.0.1:80/tcp", "put 10.0.0.1:80/tcp", "acquire [10.0.0.1]")
}

// TestWaitEndsWithItsContext checks that a data path that hangs does not block requests.
func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := newFakeKernel()
	r := newRig(t, w, web)
	hold := make(chan struct{})
	r.mu.Lock()
	w.hold = hold
	r.mu.Unlock()
	c := r.put(dns)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := r.statuses.Wait(ctx, c.revision, c.ids); !errors.Is(err, status.ErrWaiting) {
		t.Errorf("got %v, want the error status.ErrWaiting", err)
	}
	close(hold)
	r.wait(c)
}

// TestEndpointsAreNotified checks that Endpoints is notified after a delay, once for many changes,
// and of the removal of an address only when no service has it.
func TestEndpointsAreNotified(t *testing.T) {
	t.Parallel()
	r := newRig(t, newFakeKernel(), web)
	hosts := func(want ...string) func() bool {
		return func() bool { return slices.Equal(words(r.hosts), want) }
	}
	r.eventually("the first ones", hosts("192.168.1.1", "192.168.1.2"))
	for i := range 50 {
		r.wait(r.put(fmt.Sprintf("10.0.1.%d:80/tcp endpoints=192.168.1.1:80,192.168.2.%d:80", i, i+1)))
	}
	r.eventually("50 more", func() bool { return len(r.hosts) == 52 })
	r.mu.Lock()
	if r.updates > 25 {
		t.Errorf("%d updates for 50 changes", r.updates)
	}
	r.mu.Unlock()
	r.wait(r.commit(func(tx *store.Tx) error {
		for s := range r.state.Services.All(tx) {
			if s.VIP != netip.MustParseAddr("10.0.1.7") {
				if err := r.state.Services.Delete(tx, s.Key); err != nil {
					return err
				}
			}
		}
		return nil
	}))
	r.eventually("all but two gone", hosts("192.168.1.1", "192.168.2.8"))
}

func words(list []netip.Addr) (out []string) {
	for _, a := range list {
		out = append(out, a.String())
	}
	return out
}

// TestManyWriters checks that the final state is the store's, whatever the order of commits.
func TestManyWriters(t *testing.T) {
	t.Parallel()
	w := newFakeKernel()
	r := newRig(t, w)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 40 {
				text := fmt.Sprintf("10.0.%d.%d:80/tcp endpoints=192.168.1.1:80", i, n%5)
				r.wait(r.put(text))
				if n%3 == 0 {
					k, _, _ := strings.Cut(text, " ")
					r.wait(r.delete(k))
				}
			}
		})
	}
	all.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	want := map[bpf.TcServiceKey]bool{}
	vips := map[netip.Addr]bool{}
	for s := range r.state.Services.All(r.state.Snapshot()) {
		want[compile.Key(s.Key)] = true
		vips[s.VIP] = true
	}
	if diff := cmp.Diff(want, w.services); diff != "" {
		t.Errorf("services: %s", diff)
	}
	if diff := cmp.Diff(vips, w.vips, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("VIPs: %s", diff)
	}
}

const (
	arm = "10.0.0.5:80/tcp mode=onearm endpoints=192.168.1.1:80"
	// These services do not depend on the path to an endpoint.
	nat  = "10.0.0.1:80/tcp mode=fullnat endpoints=192.168.1.1:80"
	nat2 = "10.0.0.2:80/tcp mode=fullnat endpoints=192.168.1.1:80"
)

// TestSourceMoves checks that only services with a changed path to their endpoints are applied
// again.
func TestSourceMoves(t *testing.T) {
	t.Parallel()
	w := newFakeKernel()
	w.source = netip.MustParseAddr("192.168.1.100")
	r := newRig(t, w, nat, arm)
	r.wantEvents("put 10.0.0.1:80/tcp", "put 10.0.0.5:80/tcp from 192.168.1.100", "acquire [10.0.0.1 10.0.0.5]")
	r.services.RoutesChanged()
	r.mu.Lock()
	w.source = netip.MustParseAddr("192.168.1.101")
	r.mu.Unlock()
	r.eventually("looked up", func() bool { r.services.RoutesChanged(); return len(r.events) > 0 })
	r.wantEvents("put 10.0.0.5:80/tcp from 192.168.1.101")
}

// TestSourceChangesWhileLookedUp checks a change of routes during the first lookup of an endpoint,
// which has still seen the former routes. The lookup of all endpoints after the change does not
// include this endpoint yet.
func TestSourceChangesWhileLookedUp(t *testing.T) {
	t.Parallel()
	w := newFakeKernel()
	w.source = netip.MustParseAddr("192.168.1.100")
	r := newRig(t, w)
	release := make(chan struct{})
	r.mu.Lock()
	before := w.lookups
	w.lookup = func() error { <-release; return nil }
	r.mu.Unlock()
	c := r.put(arm)
	r.eventually("the lookup has begun", func() bool { return w.lookups > before })
	r.mu.Lock()
	w.lookup, w.source = nil, netip.MustParseAddr("192.168.1.101")
	r.mu.Unlock()
	r.services.RoutesChanged()
	r.eventually("all are looked up again", func() bool { return r.status(TaskKind, "source addresses").Applied == 1 })
	close(release)
	r.wait(c)
	r.eventually("the new source", func() bool { return slices.Contains(r.events, "put 10.0.0.5:80/tcp from 192.168.1.101") })
}

// TestSourceAppears checks that when a change of one service finds that an endpoint has become
// reachable, the other services with this endpoint follow.
func TestSourceAppears(t *testing.T) {
	t.Parallel()
	w := newFakeKernel()
	r := newRig(t, w, arm)
	r.wantEvents("put 10.0.0.5:80/tcp", "acquire [10.0.0.5]")
	r.mu.Lock()
	w.source = netip.MustParseAddr("192.168.1.100")
	r.mu.Unlock()
	r.wait(r.put(strings.Replace(arm, "10.0.0.5:80", "10.0.0.5:81", 1)))
	r.eventually("the other one follows", func() bool { return slices.Contains(r.events, "put 10.0.0.5:80/tcp from 192.168.1.100") })
}

// TestSourcesAreForgotten checks that endpoints that are added and removed leave nothing behind.
func TestSourcesAreForgotten(t *testing.T) {
	t.Parallel()
	w := newFakeKernel()
	w.source = netip.MustParseAddr("192.168.1.100")
	r := newRig(t, w, arm)
	r.wait(r.put("10.0.0.5:80/tcp mode=onearm endpoints=192.168.1.77:80"))
	r.wait(r.put("10.0.0.5:80/tcp mode=onearm endpoints=192.168.1.78:80"))
	r.services.sources.mu.Lock()
	defer r.services.sources.mu.Unlock()
	if n := len(r.services.sources.known); n != 1 {
		t.Errorf("%d endpoints are known, want 1", n)
	}
}

// TestSourceLookupDelaysNothing checks that a change is applied during a lookup of sources, however
// long that takes, and that there is a pause between lookups that fail.
func TestSourceLookupDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeKernel()
		w.source = netip.MustParseAddr("192.168.1.100")
		r := newRig(t, w, arm)
		release := make(chan struct{})
		r.mu.Lock()
		before := w.lookups
		w.lookup = func() error { <-release; return errBroken }
		r.mu.Unlock()
		r.services.RoutesChanged()
		r.eventually("the lookup has begun", func() bool { return w.lookups > before })
		r.wait(r.put(nat))
		close(release)
		r.eventually("its failure is reported", func() bool { s := r.status(TaskKind, "source addresses"); return s.State() == status.Failed })
		r.wait(r.put(nat2))
		time.Sleep(firstRetry)
		r.mu.Lock()
		defer r.mu.Unlock()
		if n := w.lookups - before; n > 5 {
			t.Errorf("%d lookups", n)
		}
	})
}

// TestSourceLookupFails checks that a failed lookup fails only the services that need it.
func TestSourceLookupFails(t *testing.T) {
	t.Parallel()
	w := newFakeKernel()
	w.lookup = func() error { return errBroken }
	r := newRig(t, w)
	c := r.put(nat, arm)
	err := r.result(c)
	var failed *status.Error
	if !errors.As(err, &failed) || len(failed.Failures) != 1 || failed.Failures[0].Key != "10.0.0.5:80/tcp" {
		t.Errorf("got %v, want one failure, of 10.0.0.5:80/tcp", err)
	}
	r.mu.Lock()
	w.lookup, w.source = nil, netip.MustParseAddr("192.168.1.100")
	r.mu.Unlock()
	r.eventually("applied", func() bool { s := r.status("service", "10.0.0.5:80/tcp"); return s.State() == status.Applied })
}

// TestUnreachableInDSR checks that an endpoint behind a router has a status with the reason why
// mode dsr cannot reach it, until the route or the service changes. The service is applied.
func TestUnreachableInDSR(t *testing.T) {
	t.Parallel()
	const direct = "10.0.0.6:80/tcp mode=dsr endpoints=192.168.1.1:80"
	w := newFakeKernel()
	w.source, w.routed = netip.MustParseAddr("192.168.1.100"), true
	r := newRig(t, w, direct)
	r.eventually("applied", func() bool { s := r.status("service", "10.0.0.6:80/tcp"); return s.State() == status.Applied })
	if s := r.status("endpoint", "192.168.1.1"); s.State() != status.Failed || !strings.Contains(s.Err.Error(), "behind a router") {
		t.Errorf("the endpoint is %s: %v", s.State(), s.Err)
	}
	isReported := func() bool { s := r.status("endpoint", "192.168.1.1"); return s.Err != nil }
	r.wait(r.put(direct + " tunnel=ipip"))
	if isReported() {
		t.Error("the endpoint is still reported as unreachable, although a tunnel reaches it")
	}
	r.wait(r.put(direct))
	if !isReported() {
		t.Error("the endpoint is not reported as unreachable without the tunnel")
	}
	r.mu.Lock()
	w.routed = false
	r.mu.Unlock()
	r.eventually("it is a neighbour now", func() bool { r.services.RoutesChanged(); return !isReported() })
}

// TestIdle checks that an idle loop does nothing.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newFakeKernel(), web, arm)
		<-r.services.Idle()
		synctest.Wait()
		before := r.feeds.Load()
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if n := r.feeds.Load() - before; n > 0 {
			t.Errorf("the idle loop looked for changes %d times in 0.2 s", n)
		}
	})
}
