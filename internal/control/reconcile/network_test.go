package reconcile

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"loxilb/internal/control/status"
	"loxilb/internal/event"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/netdev"
)

// fakeNetwork is the network and the data path. It counts calls.
type fakeNetwork struct {
	mu     sync.Mutex
	calls  map[string]int
	broken error
}

func (p *fakeNetwork) call(what string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[what]++
	return p.broken
}

// took returns how often something was done since the last call of took.
func (p *fakeNetwork) took(what string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.calls[what]
	p.calls[what] = 0
	return n
}

func (p *fakeNetwork) ShareNextHops(bool) error             { return nil }
func (p *fakeNetwork) BumpNextHops() error                  { return p.call("next hops") }
func (p *fakeNetwork) BumpNeighbours() error                { return p.call("neighbours") }
func (p *fakeNetwork) SetLocalAddresses([]netip.Addr) error { return p.call("local addresses") }
func (p *fakeNetwork) SetDefaultRoutes([]datapath.DefaultRoute) error {
	return p.call("default routes")
}
func (p *fakeNetwork) RoutesByDestination() bool           { return true }
func (p *fakeNetwork) Addresses() []netip.Addr             { return nil }
func (p *fakeNetwork) DefaultRoutes() ([]netdev.Hop, bool) { return nil, true }

// TestNetwork checks that each change of the network updates what depends on it, and that a failed
// update is retried until it succeeds.
func TestNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, o := &fakeNetwork{calls: map[string]int{}}, quiet()
		var notified []event.Kind
		var busy sync.Mutex // the follower of the network is busy while the test holds it
		n := NewNetwork(p, p, o, func(b event.Body) { busy.Lock(); notified = append(notified, b.Kind()); busy.Unlock() })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { n.Run(ctx); close(done) }()
		defer func() { cancel(); <-done }()
		want := func(step string, nextHops, neighbours, local, defaults int) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			got := []int{p.took("next hops"), p.took("neighbours"), p.took("local addresses"), p.took("default routes")}
			if want := []int{nextHops, neighbours, local, defaults}; !slices.Equal(got, want) {
				t.Errorf("%s: %d, want %d", step, got, want)
			}
		}
		want("at the start", 1, 1, 1, 1)
		o.Events.Publish(event.Routes{Count: 3})
		want("routes", 1, 0, 0, 0)
		o.Events.Publish(event.Routes{Count: 1, Defaults: true})
		want("a default route", 1, 0, 0, 1)
		o.Events.Publish(event.Routes{Count: 1, Neighbours: true})
		want("MAC addresses", 0, 1, 0, 0)
		o.Events.Publish(event.Address{Action: event.Added})
		want("an address", 0, 0, 1, 0)
		for range event.Capacity {
			o.Events.Publish(event.Neighbour{})
		}
		want("neighbours, which matter as routes only", 0, 0, 0, 0)
		o.Events.Publish(event.Object{})
		want("something else", 0, 0, 0, 0)

		p.mu.Lock()
		p.broken = errors.New("broken")
		p.mu.Unlock()
		busy.Lock()
		o.Events.Publish(event.Routes{Count: 1})
		o.Events.Publish(event.Address{Action: event.Added})
		for range event.Capacity + 1 { // the earlier event is lost
			o.Events.Publish(event.Routes{Count: 1})
		}
		busy.Unlock()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		for _, what := range []string{"next hops", "neighbours", "local addresses", "default routes"} {
			if n := p.took(what); n < 10 {
				t.Errorf("%s: tried %d times in ten minutes", what, n)
			}
			if s, _ := o.Statuses.Get(status.ID{Kind: TaskKind, Key: what}); s.State() != status.Failed {
				t.Errorf("got %+v, want state status.Failed", s)
			}
		}
		p.mu.Lock()
		p.broken = nil
		p.mu.Unlock()
		want("repaired", 1, 1, 1, 1)
		if list := o.Statuses.List("", true); len(list) != 0 {
			t.Errorf("got %+v, want none", list)
		}
		if !slices.Equal(notified[:8], []event.Kind{"link", "address", "route", "route", "route", "route", "route", "address"}) {
			t.Errorf("others were notified of %v", notified)
		}
	})
}
