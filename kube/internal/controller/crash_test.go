package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"loxilb/kube/internal/annotation"
	"loxilb/test/await"
)

// TestLostStatus ends a controller after balancers got a Service, but before its status had the
// address. The next controller, which reconciles another Service first, gives each its own address,
// and leaves nothing else on balancers.
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

// TestHalfRemoved ends a controller after the first of the two writes that release a Service whose
// type has changed. The next controller makes the second write: a remaining finalizer would prevent
// the deletion of the Service.
func TestHalfRemoved(t *testing.T) {
	t.Parallel()
	s := service("web")
	b := newBench(t, s, slice(s, "10.1.0.1@n1"))
	b.wantStatus(s, "20.20.20.1", reasonProgrammed)
	b.change(s, func() { s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil })
	writes, lost := 0, errors.New("connection lost")
	count := func() error {
		if writes++; writes > 1 {
			return lost
		}
		return nil
	}
	b.services.Client = interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := count(); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := count(); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	await.True(t, patience, "the second write is lost", func() bool { return errors.Is(b.reconcileAll(), lost) })
	b.start(annotation.Settings{PodNetwork: true})
	await.NoError(t, patience, func() error {
		b.reconcile()
		if err := b.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
			return err
		}
		if len(s.Finalizers) > 0 || len(s.Status.Conditions) > 0 || len(s.Status.LoadBalancer.Ingress) > 0 {
			return fmt.Errorf("the Service still has finalizers %q and status %+v", s.Finalizers, s.Status)
		}
		return nil
	})
}
