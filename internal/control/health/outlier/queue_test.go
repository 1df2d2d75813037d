package outlier

import (
	"net/netip"
	"slices"
	"testing"
)

// TestQueue checks that addresses take turns, that failed ones come first, and that each is
// returned once.
func TestQueue(t *testing.T) {
	t.Parallel()
	var q Queue
	push := func(list ...string) {
		for _, at := range list {
			q.Push(Action{At: netip.MustParseAddrPort(at)})
		}
	}
	pop := func(want ...string) {
		t.Helper()
		var got []string
		for range want {
			if a, ok := q.Pop(); ok {
				got = append(got, a.At.String())
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("the checked endpoints are %v, want %v", got, want)
		}
	}
	push("10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.3:2")
	pop("10.0.0.1:1", "10.0.0.2:1")
	q.Failed(netip.MustParseAddrPort("10.0.0.1:1"))
	q.Failed(netip.MustParseAddrPort("10.0.0.2:1")) // the queue has no other
	q.Failed(netip.MustParseAddrPort("10.0.0.1:1"))
	pop("10.0.0.1:2", "10.0.0.1:3", "10.0.0.3:1")
	push("10.0.0.1:4", "10.0.0.4:1")
	pop("10.0.0.1:4", "10.0.0.3:2", "10.0.0.4:1")
	if a, ok := q.Pop(); ok || len(q.waiting) > 0 {
		t.Errorf("the queue still has %v", a)
	}
}
