package controller

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"loxilb/kube/internal/annotation"
	"loxilb/test/await"
)

// TestSecondaryPools checks that a Service gets an additional address of each selected pool, of the
// family of its first VIP.
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

// TestWaitingForgotten checks that a Service that is deleted, or moves to another zone, while it
// waits for an address is forgotten: each free address wakes the Services that wait.
func TestWaitingForgotten(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(*bench, *corev1.Service) error{
		"deleted":      func(b *bench, s *corev1.Service) error { return b.Delete(b.t.Context(), s) },
		"another zone": func(b *bench, s *corev1.Service) error { moveToZone(b, s); return nil },
	} {
		s := service("web")
		s.Annotations[annotation.Prefix+"poolSelect"] = "none"
		b := newBench(t, s)
		b.reconcile()
		key := client.ObjectKeyFromObject(s)
		isWaiting := func() bool {
			b.services.mu.Lock()
			defer b.services.mu.Unlock()
			return b.services.waiting[key]
		}
		if !isWaiting() {
			t.Fatal("the Service does not wait for an address")
		}
		if err := end(b, s); err != nil {
			t.Fatal(err)
		}
		await.NoError(t, patience, func() error {
			b.reconcile()
			if isWaiting() {
				return fmt.Errorf("%s: the Service waits for an address", what)
			}
			return nil
		})
	}
}

// TestAdoptedForgotten checks that a Service which is invalid since a restart, and moves to another
// zone, releases the address of its status.
func TestAdoptedForgotten(t *testing.T) {
	t.Parallel()
	s := service("web")
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "20.20.20.1"}}
	s.Annotations[annotation.Prefix+"lbmode"] = "sideways"
	b := newBench(t, s)
	b.reconcile()
	addresses := func() []netip.Addr { return b.services.Addresses.Of("default/web") }
	if got := addresses(); len(got) != 1 {
		t.Fatalf("after a restart, the Service has addresses %v, want that of its status", got)
	}
	moveToZone(b, s)
	await.NoError(t, patience, func() error {
		b.reconcile()
		if got := addresses(); len(got) > 0 {
			return fmt.Errorf("a Service of another zone has addresses %v", got)
		}
		return nil
	})
}

// moveToZone makes a Service that of another zone.
func moveToZone(b *bench, s *corev1.Service) {
	b.t.Helper()
	b.change(s, func() { s.Annotations[annotation.ZoneSelect] = "aws" })
}
