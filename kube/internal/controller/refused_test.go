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

// errRefused is the answer of a webhook that refuses a write.
var errRefused = errors.New("admission webhook denied the request")

// refuseWrites makes the apiserver refuse all writes to a Service.
func (b *bench) refuseWrites(name string) {
	b.services.Client = interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if o.GetName() == name {
				return errRefused
			}
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if o.GetName() == name {
				return errRefused
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
}

// reconcileAll reconciles all Services, and returns the last error.
func (b *bench) reconcileAll() (last error) {
	for _, name := range names() {
		request := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: name}}
		if _, err := b.services.Reconcile(b.t.Context(), request); err != nil {
			last = err
		}
	}
	return last
}

// TestRefusedWrites starts a controller while all writes to one Service are refused. Balancers keep
// its services, and another Service can be deleted.
func TestRefusedWrites(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(*bench, *corev1.Service) error{
		"its status is lost": func(b *bench, s *corev1.Service) error {
			s.Status = corev1.ServiceStatus{}
			return b.Status().Update(b.t.Context(), s)
		},
		"its finalizer is lost": func(b *bench, s *corev1.Service) error {
			s.Finalizers = nil
			return b.Update(b.t.Context(), s)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, other := service("web"), service("other")
			other.Spec.Ports[0].Port = 81
			b := newBench(t, s, slice(s, "10.1.0.1@n1"), other, slice(other, "10.1.0.2@n1"))
			b.want("both", "20.20.20.1:80=10.1.0.1:8080 20.20.20.2:81=10.1.0.2:8080")
			b.wantStatus(other, "20.20.20.2", reasonProgrammed)
			b.wantStatus(s, "20.20.20.1", reasonProgrammed)
			b.stop()
			if err := lose(b, s); err != nil {
				t.Fatal(err)
			}
			b.start(annotation.Settings{PodNetwork: true})
			b.refuseWrites("web")
			await.True(t, patience, "writes are refused", func() bool { return errors.Is(b.reconcileAll(), errRefused) })
			if err := b.Delete(t.Context(), other); err != nil {
				t.Fatal(err)
			}
			await.NoError(t, patience, func() error {
				if err := b.reconcileAll(); !errors.Is(err, errRefused) {
					return fmt.Errorf("writes are not refused: %w", err)
				}
				for i, one := range b.balancers {
					if got := servicesOf(one); got != "20.20.20.1:80=10.1.0.1:8080" {
						return fmt.Errorf("balancer %d has %q", i+1, got)
					}
				}
				if err := b.Get(t.Context(), client.ObjectKeyFromObject(other), other); !isGone(err) {
					return errors.New("the deleted Service is still there")
				}
				return nil
			})
		})
	}
}

func isGone(err error) bool { return client.IgnoreNotFound(err) == nil && err != nil }
