package balancer

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"loxilb/test/await"
)

// TestUnnamedRefusal checks that a balancer which does not report which service of a request it
// refuses gets all others, with few requests.
func TestUnnamedRefusal(t *testing.T) {
	t.Parallel()
	r := newRemote(t, nil, plain)
	f := newFleet(t, Options{}, Access{}, r)
	r.refuse(func(body string) int {
		if strings.Contains(body, "_s5:") {
			return http.StatusConflict
		}
		return 0
	})
	const services = 8
	for i := range services {
		f.Set(numbered(i, 1))
	}
	f.Complete()
	if err := f.round(t); err != nil {
		t.Fatal(err)
	}
	if n := len(r.List()); n != services-1 {
		t.Errorf("the balancer has %d services, want %d", n, services-1)
	}
	// all services, then both halves of each part with the refused one
	if n := r.applied.Load(); n != 7 {
		t.Errorf("there were %d requests, want 7", n)
	}
	for i := range services {
		name, _ := numbered(i, 1)
		if errs := f.State(name).Errors; (len(errs) > 0) != (i == 5) {
			t.Errorf("errors of %s: %v", name, errs)
		}
	}
}

// TestLateBalancer checks that a balancer which is added while the fleet runs gets the services.
func TestLateBalancer(t *testing.T) {
	t.Parallel()
	r := newRemote(t, nil, plain)
	f := newFleet(t, Options{}, Access{})
	f.Set(numbered(0, 1))
	f.Complete()
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { _ = f.Start(ctx) })
	defer ended.Wait()
	defer cancel()
	await.True(t, time.Minute, "the fleet runs", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.ctx != nil
	})
	if !f.SetTargets([]Target{targetOf(t, r, Access{})}) {
		t.Error("the balancer is not added")
	}
	await.True(t, time.Minute, "the balancer has the service", func() bool { return len(r.List()) == 1 })
}
