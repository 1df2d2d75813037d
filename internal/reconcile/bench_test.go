package reconcile

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/datapath"
	"loxilb/internal/datapath/bpf"
	"loxilb/internal/desired"
	"loxilb/internal/lb"
	"loxilb/internal/store"
)

// world is the data path, the addresses and the endpoints in one, so that the order of what happens is seen.
type world struct {
	mu       sync.Mutex
	events   []string
	services map[bpf.TcServiceKey]bool
	vips     map[netip.Addr]bool
	hosts    []netip.Addr
	tellings int
	fail     func(event string) error // nil: nothing fails
	hold     chan struct{}            // if not nil, Apply waits until it is closed
}

func newWorld() *world {
	return &world{services: map[bpf.TcServiceKey]bool{}, vips: map[netip.Addr]bool{}}
}

func (w *world) note(format string, args ...any) error {
	event := fmt.Sprintf(format, args...)
	w.events = append(w.events, event)
	if w.fail != nil {
		return w.fail(event)
	}
	return nil
}

func (w *world) Apply(changes []datapath.Change) []error {
	w.mu.Lock()
	hold := w.hold
	w.mu.Unlock()
	if hold != nil {
		<-hold
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, c := range changes {
		if c.Table == nil {
			errs = append(errs, w.note("delete %s", c.Key))
			delete(w.services, c.Key)
		} else {
			errs = append(errs, w.note("put %s", c.Key))
			w.services[c.Key] = true
		}
	}
	return errs
}

func (w *world) Services() []bpf.TcServiceKey {
	w.mu.Lock()
	defer w.mu.Unlock()
	var keys []bpf.TcServiceKey
	for k := range w.services {
		keys = append(keys, k)
	}
	return keys
}

// addresses is the world as Addresses; Set would be two methods otherwise.
type addresses struct{ *world }

func (a addresses) Set(_ context.Context, vips []netip.Addr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.SortFunc(vips, netip.Addr.Compare)
	clear(a.vips)
	for _, vip := range vips {
		a.vips[vip] = true
	}
	return a.note("own exactly %v", vips)
}

func (a addresses) Add(_ context.Context, vips ...netip.Addr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.note("own %v", vips)
	if err == nil {
		for _, vip := range vips {
			a.vips[vip] = true
		}
	}
	return err
}

func (a addresses) Remove(_ context.Context, vips ...netip.Addr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.note("give up %v", vips)
	if err == nil {
		for _, vip := range vips {
			delete(a.vips, vip)
		}
	}
	return err
}

// endpoints is the world as Endpoints.
type endpoints struct{ *world }

func (e endpoints) Set(all iter.Seq[netip.Addr]) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hosts = slices.SortedFunc(all, netip.Addr.Compare)
	e.tellings++
}

// bench is a running reconciler over a store in memory.
type bench struct {
	*world
	t     testing.TB
	store *desired.State
	rec   *Reconciler
	swept chan struct{}
}

func newBench(t testing.TB, w *world, services ...string) *bench {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	st, err := desired.Open("", log)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{world: w, t: t, store: st, swept: make(chan struct{}, 1000)}
	b.rec = New(st, w, addresses{w}, noSources{}, endpoints{w}, func() { b.swept <- struct{}{} }, 0, log)
	rev := b.put(services...)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { b.rec.Run(ctx); close(done) }()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	b.wait(rev)
	return b
}

func (b *bench) commit(edit func(*store.Tx) error) uint64 {
	b.t.Helper()
	rev, _, err := b.store.Commit("rest", edit)
	if err != nil {
		b.t.Fatal(err)
	}
	return rev
}

// put stores services written as text.
func (b *bench) put(services ...string) uint64 {
	b.t.Helper()
	return b.commit(func(tx *store.Tx) error {
		for _, text := range services {
			s, err := lb.ParseService(text)
			if err == nil {
				err = b.store.Services.Put(tx, s)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bench) delete(keys ...string) uint64 {
	b.t.Helper()
	return b.commit(func(tx *store.Tx) error {
		for _, k := range keys {
			if err := b.store.Services.Delete(tx, key(b.t, k)); err != nil {
				return err
			}
		}
		return nil
	})
}

func key(t testing.TB, text string) lb.Key {
	t.Helper()
	k, err := lb.ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// wait wants the revision to be applied.
func (b *bench) wait(revision uint64) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	if err := b.rec.Wait(ctx, revision); err != nil {
		b.t.Fatal(err)
	}
}

// eventually retries until the condition holds.
func (b *bench) eventually(what string, holds func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		b.mu.Lock()
		ok := holds()
		b.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatal("not within 10 s: " + what)
		}
		time.Sleep(time.Millisecond)
	}
}

// took returns what happened since the last call.
func (b *bench) took() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := strings.Join(b.events, "\n")
	b.events = nil
	return out
}

func (b *bench) wantEvents(want ...string) {
	b.t.Helper()
	if diff := cmp.Diff(strings.Join(want, "\n"), b.took()); diff != "" {
		b.t.Errorf("what happened: -want +got\n%s", diff)
	}
}

// noSources knows no source addresses: no service here translates them.
type noSources struct{}

func (noSources) Towards(context.Context, []netip.Addr) (map[netip.Addr]netip.Addr, error) {
	return nil, nil
}
