package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/compile"
	"loxilb/internal/datapath"
	"loxilb/internal/datapath/bpf"
	"loxilb/internal/desired"
	"loxilb/internal/lb"
	"loxilb/internal/store"
)

const (
	web  = "10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80"
	web2 = "10.0.0.1:443/tcp endpoints=192.168.1.1:443"
	dns  = "10.0.0.2:53/udp endpoints=192.168.1.3:53"
)

// TestOrder: a VIP is owned after its first service is there, and given up after its last one is gone; what goes makes
// room for what comes.
func TestOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t, newWorld())
	b.wantEvents("own exactly []")
	b.wait(b.put(web))
	b.wantEvents("put 10.0.0.1:80/tcp", "own [10.0.0.1]")
	b.wait(b.put(web2))
	b.wantEvents("put 10.0.0.1:443/tcp")
	b.wait(b.put(strings.Replace(web, "192.168.1.2", "192.168.1.9", 1)))
	b.wantEvents("put 10.0.0.1:80/tcp")
	b.wait(b.delete("10.0.0.1:80/tcp"))
	b.wantEvents("delete 10.0.0.1:80/tcp")
	b.wait(b.commit(func(tx *store.Tx) error {
		s, err := lb.ParseService(strings.Replace(dns, "10.0.0.2", "10.0.0.0", 1))
		return errors.Join(err, b.store.Services.Put(tx, s), b.store.Services.Delete(tx, key(t, "10.0.0.1:443/tcp")))
	}))
	b.wantEvents("delete 10.0.0.1:443/tcp", "put 10.0.0.0:53/udp", "give up [10.0.0.1]", "own [10.0.0.0]")
	if rev, err := b.rec.Applied(); err != nil || rev != b.store.Snapshot().Revision() {
		t.Errorf("applied %d, %v", rev, err)
	}
}

// TestStart: what is in the data path and not in the store is removed, and all that is stored is applied, before
// anything else.
func TestStart(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for _, k := range []string{"10.0.0.1:80/tcp", "10.0.0.9:80/tcp"} {
		w.services[compile.Key(key(t, k))] = true
	}
	b := newBench(t, w, web, dns)
	b.wantEvents("delete 10.0.0.9:80/tcp", "put 10.0.0.1:80/tcp", "put 10.0.0.2:53/udp", "own exactly [10.0.0.1 10.0.0.2]")
	select {
	case <-b.swept:
	default:
		t.Error("nobody was told to sweep")
	}
}

// TestRetry: what fails is tried again, and the rest is not kept waiting by it.
func TestRetry(t *testing.T) {
	t.Parallel()
	w := newWorld()
	broken := errors.New("no memory")
	w.fail = func(event string) error {
		if strings.HasSuffix(event, "10.0.0.1:80/tcp") {
			return broken
		}
		return nil
	}
	b := newBench(t, w)
	b.took()
	rev := b.put(web, dns)
	if err := b.rec.Wait(t.Context(), rev); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	b.wantEvents("put 10.0.0.1:80/tcp", "put 10.0.0.2:53/udp", "own [10.0.0.1 10.0.0.2]")
	if applied, err := b.rec.Applied(); applied >= rev || !errors.Is(err, broken) {
		t.Errorf("applied %d of %d, %v", applied, rev, err)
	}
	// A change does not wait for the next try, and takes it along.
	if err := b.rec.Wait(t.Context(), b.put(strings.Replace(dns, ":53/", ":54/", 1))); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	b.wantEvents("put 10.0.0.1:80/tcp", "put 10.0.0.2:53/udp", "put 10.0.0.2:54/udp")
	b.mu.Lock()
	w.fail = nil
	b.mu.Unlock()
	last := b.store.Snapshot().Revision()
	b.eventually("tried again", func() bool { return len(b.events) > 0 })
	b.wait(last)
	b.wantEvents("put 10.0.0.1:80/tcp", "put 10.0.0.2:53/udp", "put 10.0.0.2:54/udp")
}

// TestRetryOfAddresses: a VIP that could not be owned, or given up, is tried again.
func TestRetryOfAddresses(t *testing.T) {
	t.Parallel()
	w := newWorld()
	b := newBench(t, w)
	for _, c := range []struct {
		change func() uint64
		owned  bool
	}{
		{func() uint64 { return b.put(web) }, true},
		{func() uint64 { return b.delete("10.0.0.1:80/tcp") }, false},
	} {
		broken := errors.New("netlink is gone")
		b.mu.Lock()
		w.fail = func(event string) error {
			if strings.Contains(event, "[10.0.0.1]") {
				return broken
			}
			return nil
		}
		b.mu.Unlock()
		rev := c.change()
		if err := b.rec.Wait(t.Context(), rev); !errors.Is(err, broken) {
			t.Errorf("the error is %v", err)
		}
		b.mu.Lock()
		w.fail = nil
		b.mu.Unlock()
		b.eventually("tried again", func() bool { return w.vips[netip.MustParseAddr("10.0.0.1")] == c.owned })
		b.eventually("applied", func() bool { applied, err := b.rec.Applied(); return applied == rev && err == nil })
	}
}

// TestRetryOfStart: when the first pass fails, all of it is done again.
func TestRetryOfStart(t *testing.T) {
	t.Parallel()
	w := newWorld()
	broken := errors.New("no memory")
	failures := 2
	w.fail = func(event string) error {
		if strings.HasPrefix(event, "put 10.0.0.2") && failures > 0 {
			failures--
			return broken
		}
		return nil
	}
	log := slog.New(slog.DiscardHandler)
	st, err := desired.Open("", log)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{world: w, t: t, store: st, swept: make(chan struct{}, 1000)}
	b.rec = New(st, w, addresses{w}, noSources{}, endpoints{w}, func() {}, 0, log)
	rev := b.put(web, dns)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { b.rec.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	if err := b.rec.Wait(t.Context(), rev); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	b.eventually("applied", func() bool { applied, err := b.rec.Applied(); return applied == rev && err == nil })
	all := []string{"put 10.0.0.1:80/tcp", "put 10.0.0.2:53/udp", "own exactly [10.0.0.1 10.0.0.2]"}
	b.wantEvents(slices.Concat(all, all, all)...)
}

// TestWaitForRoom: a change that finds no rows left waits until there are some.
func TestWaitForRoom(t *testing.T) {
	t.Parallel()
	w := newWorld()
	b := newBench(t, w)
	failures := 1
	b.mu.Lock()
	w.fail = func(event string) error {
		if strings.HasPrefix(event, "put") && failures > 0 {
			failures--
			return fmt.Errorf("service x: %w", datapath.ErrFull)
		}
		return nil
	}
	b.mu.Unlock()
	b.took()
	b.wait(b.put(web))
	b.wantEvents("put 10.0.0.1:80/tcp", "own [10.0.0.1]", "put 10.0.0.1:80/tcp")
}

// TestWait: it blocks until the revision is applied, ends with its context, and returns at once for what is there.
func TestWait(t *testing.T) {
	t.Parallel()
	w := newWorld()
	b := newBench(t, w, web)
	b.wait(0)
	b.wait(1)
	hold := make(chan struct{})
	b.mu.Lock()
	w.hold = hold
	b.mu.Unlock()
	rev := b.put(dns)
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() { waited <- b.rec.Wait(ctx, rev) }()
	cancel()
	if err := <-waited; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "revision 2 is stored, but not yet in the data path") {
		t.Errorf("the error is %v", err)
	}
	go func() { waited <- b.rec.Wait(t.Context(), rev) }()
	select {
	case err := <-waited:
		t.Errorf("it did not wait: %v", err)
	default:
	}
	b.wait(rev - 1) // what came before does not
	close(hold)
	if err := <-waited; err != nil {
		t.Error(err)
	}
}

// TestEndpointsAreTold: after a while, once for many changes, and of an address only when no service has it any more.
func TestEndpointsAreTold(t *testing.T) {
	t.Parallel()
	b := newBench(t, newWorld(), web)
	hosts := func(want ...string) func() bool {
		return func() bool {
			var got []string
			for _, a := range b.hosts {
				got = append(got, a.String())
			}
			return slices.Equal(got, want)
		}
	}
	b.eventually("the first ones", hosts("192.168.1.1", "192.168.1.2"))
	for i := range 50 {
		b.wait(b.put(fmt.Sprintf("10.0.1.%d:80/tcp endpoints=192.168.1.1:80,192.168.2.%d:80", i, i+1)))
	}
	b.eventually("50 more", func() bool { return len(b.hosts) == 52 })
	b.mu.Lock()
	if b.tellings > 25 {
		t.Errorf("told %d times of 50 changes", b.tellings)
	}
	b.mu.Unlock()
	b.wait(b.commit(func(tx *store.Tx) error {
		for s := range b.store.Services.All(tx) {
			if s.VIP != netip.MustParseAddr("10.0.1.7") {
				if err := b.store.Services.Delete(tx, s.Key); err != nil {
					return err
				}
			}
		}
		return nil
	}))
	b.eventually("all but two gone", hosts("192.168.1.1", "192.168.2.8"))
}

// TestManyWriters: whatever the order of commits, the end is the store's.
func TestManyWriters(t *testing.T) {
	t.Parallel()
	w := newWorld()
	b := newBench(t, w)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 40 {
				text := fmt.Sprintf("10.0.%d.%d:80/tcp endpoints=192.168.1.1:80", i, n%5)
				b.wait(b.put(text))
				if n%3 == 0 {
					k, _, _ := strings.Cut(text, " ")
					b.wait(b.delete(k))
				}
			}
		})
	}
	all.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	want := map[bpf.TcServiceKey]bool{}
	vips := map[netip.Addr]bool{}
	for s := range b.store.Services.All(b.store.Snapshot()) {
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
