package controller

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestPendingStatus checks that a new Service which waits for a balancer causes no write of its
// status in the first seconds, however often it is reconciled, and one write afterwards.
func TestPendingStatus(t *testing.T) {
	t.Parallel()
	s := service("web")
	b := newBench(t, s, slice(s, "10.1.0.1@n1"))
	b.stop() // so no balancer gets the Service
	writes := 0
	b.services.Client = interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			writes++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	for range 3 {
		b.reconcile()
	}
	if writes != 0 {
		t.Errorf("a new Service costs %d writes of its status", writes)
	}
	key := client.ObjectKeyFromObject(s)
	b.services.mu.Lock()
	b.services.accepted[key].since = time.Now().Add(-pendingDelay)
	b.services.mu.Unlock()
	for range 3 {
		b.reconcile()
	}
	if writes != 1 {
		t.Errorf("a Service that waits costs %d writes of its status", writes)
	}
	b.wantStatus(s, "", reasonPending)
}
