package balancer

import (
	"net/http"
	"runtime"
	"testing"
)

// TestIdle checks that polls of an up-to-date balancer with thousands of Services allocate no more
// than with one, and that later changes are noticed.
func TestIdle(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	const services = 3000
	r := newRemote(t, nil, plain)
	f := newFleet(t, Options{}, Access{}, r)
	for i := range services {
		f.Set(numbered(i, 1))
	}
	f.Complete()
	rounds := func(what string, n, want int) uint64 {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n {
			if err := f.round(t); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		if got := len(r.List()); got != want {
			t.Errorf("%s: the balancer has %d services, want %d", what, got, want)
		}
		return (after.TotalAlloc - before.TotalAlloc) / uint64(n)
	}
	rounds("all Services", 1, services)
	if each, most := rounds("nothing changes", 10, services), uint64(services*50); each > most {
		t.Errorf("a poll allocates %d bytes, want at most %d", each, most)
	}
	first, _ := numbered(0, 1)
	f.Set(first, Desired{})
	rounds("a Service without addresses", 1, services-1)
	f.Hold(first)
	f.Delete(first)
	rounds("it is deleted", 1, services-1)
	f.Set(numbered(0, 1))
	rounds("it is created again", 1, services)

	r.refuse(func(string) int { return http.StatusBadRequest })
	f.Set(numbered(services, 1))
	rounds("one is refused", 1, services)
	r.refuse(nil)
	for key, refusal := range f.members[r.URL].refused {
		refusal.at = refusal.at.Add(-retryRefused)
		f.members[r.URL].refused[key] = refusal
	}
	rounds("it is no longer refused", 1, services+1)
}
