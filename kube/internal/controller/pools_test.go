package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"loxilb/kube/api/v1alpha1"
	"loxilb/kube/internal/address"
)

// TestLoxiURLPools checks that unusable pools of LoxiURLs, which have no status, are logged once,
// and that other pools are used.
func TestLoxiURLPools(t *testing.T) {
	t.Parallel()
	var logged []string
	log := funcr.New(func(_, text string) { logged = append(logged, text) }, funcr.Options{})
	urls := []loxiURL{
		{"good", kindCIDRPool, "defaultPool=20.20.20.0/30"},
		{"typo", kindCIDRPool, "blue=20.20.21.0/33"},
		{"twice", kindCIDRPool, "red=20.20.20.1-20.20.20.9"},
		{"balancer", kindDefault, "http://192.0.2.1:11111"},
	}
	p := Pools{
		Addresses: address.New(), LoxiURLs: func(context.Context) ([]loxiURL, error) { return urls, nil },
		Sharing: address.ShareNever, Changed: func() {},
	}
	for range 2 {
		if err := p.Load(ctrl.LoggerInto(t.Context(), log)); err != nil {
			t.Fatal(err)
		}
	}
	text := fmt.Sprint(logged)
	if len(logged) != 2 || !strings.Contains(text, "LoxiURL typo: pool \\\"blue\\\"") || !strings.Contains(text, "overlaps 20.20.20.1-20.20.20.2 of pool \\\"defaultPool\\\"") {
		t.Errorf("the log has %d lines: %s", len(logged), text)
	}
	if got, _, err := p.Addresses.Allocate(&address.Request{Service: "d/s", Slots: []address.Slot{{}}}, nil); err != nil || got[0].String() != "20.20.20.1" {
		t.Errorf("got address %v: %v", got, err)
	}
}

// TestLoxiURLOrder checks that the same one of two overlapping LoxiURLs is used in whatever order
// the cache returns them: otherwise each Load would change the pools, and reconcile all Services.
func TestLoxiURLOrder(t *testing.T) {
	t.Parallel()
	urls := []loxiURL{{"a", kindCIDRPool, "red=20.20.20.1-20.20.20.9"}, {"b", kindCIDRPool, "blue=20.20.20.9-20.20.20.20"}}
	changes := 0
	p := Pools{
		Addresses: address.New(), LoxiURLs: func(context.Context) ([]loxiURL, error) { return slices.Clone(urls), nil },
		Changed: func() { changes++ },
	}
	for range 3 {
		if err := p.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		slices.Reverse(urls)
	}
	if changes != 1 || p.last[0].Name != "red" {
		t.Errorf("pools have changed %d times, and %q is the first", changes, p.last[0].Name)
	}
}

// TestPoolStatusRefused checks that a pool whose status cannot be written does not keep other pools
// from getting theirs.
func TestPoolStatusRefused(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	pool := func(name, addresses string) *v1alpha1.AddressPool {
		return &v1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.AddressPoolSpec{Addresses: []string{addresses}}}
	}
	other := pool("other", "20.20.21.0/24")
	p := Pools{
		Addresses: address.New(), Events: events.NewFakeRecorder(10), HasAddressPools: true, Changed: func() {},
		LoxiURLs: func(context.Context) ([]loxiURL, error) { return nil, nil },
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool("first", "20.20.20.0/24"), other).WithStatusSubresource(other).
			WithInterceptorFuncs(interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					if o.GetName() == "first" {
						return errRefused
					}
					return c.SubResource(sub).Patch(ctx, o, patch, opts...)
				},
			}).Build(),
	}
	if _, err := p.Reconcile(t.Context(), reconcile.Request{}); !errors.Is(err, errRefused) {
		t.Errorf("got error %v, want %v", err, errRefused)
	}
	if err := p.Client.Get(t.Context(), client.ObjectKeyFromObject(other), other); err != nil || other.Status.IPv4 == nil {
		t.Errorf("the other pool has status %+v (%v)", other.Status, err)
	}
}
