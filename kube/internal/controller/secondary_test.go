package controller

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"loxilb/kube/internal/annotation"
	"loxilb/test/await"
)

// TestSecondaryPools checks that a Service has a further address of each pool that it selects, of
// the family of its VIP.
func TestSecondaryPools(t *testing.T) {
	t.Parallel()
	s := service("web")
	s.Annotations[annotation.Prefix+"poolSelectSecondary"] = "defaultPool"
	b := newBench(t, s, slice(s, "10.1.0.1@n1"))
	b.want("one VIP", "20.20.20.1:80=10.1.0.1:8080")
	for _, e := range b.balancers[0].List() {
		if list := e.SecondaryIPs; len(list) != 1 || list[0].SecondaryIP != "20.20.20.2" {
			t.Errorf("the secondary addresses are %v", list)
		}
	}
}

// TestWaitingForgotten checks that a Service that is deleted while it waits for an address is
// forgotten: each address that becomes free wakes those that wait.
func TestWaitingForgotten(t *testing.T) {
	t.Parallel()
	s := service("web")
	s.Annotations[annotation.Prefix+"poolSelect"] = "none"
	b := newBench(t, s)
	b.reconcile()
	key := client.ObjectKeyFromObject(s)
	waits := func() bool {
		b.services.mu.Lock()
		defer b.services.mu.Unlock()
		return b.services.waiting[key]
	}
	if !waits() {
		t.Fatal("the Service does not wait for an address")
	}
	if err := b.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	await.True(t, patience, "the Service is gone", func() bool {
		b.reconcile()
		return isGone(b.Get(t.Context(), key, s))
	})
	b.reconcile()
	if waits() {
		t.Error("a deleted Service waits for an address")
	}
}
