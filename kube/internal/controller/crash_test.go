package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"loxilb/kube/internal/annotation"
)

// TestLostStatus has a controller die after balancers got a Service, and before its status had the
// address. The next controller, which meets another Service first, gives each an address of its
// own, and leaves nothing else on balancers.
func TestLostStatus(t *testing.T) {
	t.Parallel()
	s, other := service("web"), service("other")
	b := newBench(t, s, slice(s, "10.1.0.1@n1"), slice(other, "10.1.0.2@n1"))
	b.want("one Service", "20.20.20.1:80=10.1.0.1:8080")
	b.stop()
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
		t.Fatal(err)
	}
	s.Status = corev1.ServiceStatus{}
	if err := b.Status().Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := b.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	b.start(annotation.Settings{PodNetwork: true})
	if _, err := b.services.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(other)}); err != nil {
		t.Fatal(err)
	}
	b.want("both", "20.20.20.1:80=10.1.0.2:8080 20.20.20.2:80=10.1.0.1:8080")
	b.wantStatus(s, "20.20.20.2", reasonProgrammed)
	b.wantStatus(other, "20.20.20.1", reasonProgrammed)
}
