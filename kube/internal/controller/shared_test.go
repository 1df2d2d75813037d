package controller

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"loxilb/kube/internal/address"
	"loxilb/kube/internal/annotation"
)

// TestSharedAddress checks that a Service does not get the port of another one on a shared address,
// not even by a restart, but gets it as soon as the other one releases it.
func TestSharedAddress(t *testing.T) {
	t.Parallel()
	s, other := service("web"), service("other")
	s.CreationTimestamp.Time = time.Now()
	other.CreationTimestamp.Time = s.CreationTimestamp.Add(-time.Hour)
	other.Spec.Ports[0].Port = 81
	b := newBench(t, s, slice(s, "10.1.0.1@n1"), other, slice(other, "10.1.0.2@n1"))
	const both = "20.20.20.1:80=10.1.0.1:8080 20.20.20.1:81=10.1.0.2:8080"
	b.startShared()
	b.want("one address, two ports", both)
	b.wantStatus(s, "20.20.20.1", reasonProgrammed)
	b.wantStatus(other, "20.20.20.1", reasonProgrammed)
	b.change(other, func() { other.Spec.Ports[0].Port = 80 })
	b.wantAccepted(other, address.ReasonConflict, "port 80/TCP of address 20.20.20.1 belongs to service default/web")
	b.startShared()
	b.want("after a restart", both)
	b.wantAccepted(other, address.ReasonConflict, "")
	b.wantAccepted(s, reasonAccepted, "")

	b.change(s, func() { s.Spec.Ports[0].Port = 82 })
	woken := b.woken(func() {
		if _, err := b.services.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)}); err != nil {
			t.Fatal(err)
		}
	})
	if !woken["other"] {
		t.Errorf("the Service that waits for port 80 is not reconciled, others are: %v", woken)
	}
	b.want("port 80 is free", "20.20.20.1:80=10.1.0.2:8080 20.20.20.1:82=10.1.0.1:8080")
}

// TestAddressOfAPIServer checks that a Service cannot request the address of the apiserver, which
// has clients on all nodes.
func TestAddressOfAPIServer(t *testing.T) {
	t.Parallel()
	api, s := service("kubernetes"), service("web")
	s.Annotations[annotation.Prefix+"staticIP"] = "198.51.100.9"
	b := newBench(t, s, slice(api, "198.51.100.9"))
	b.wantAccepted(s, address.ReasonInvalid, "address 198.51.100.9 belongs to the apiserver")
	b.want("nothing", "")
}

// TestSharedLocalByBGP checks that a Service does not share VIPs if only nodes with its pods
// announce them: otherwise clients of one Service could reach nodes that only have pods of the
// other.
func TestSharedLocalByBGP(t *testing.T) {
	t.Parallel()
	s, other := service("web"), service("other")
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	other.Spec.Ports[0].Port = 81
	b := newBench(t, s, slice(s, "10.1.0.1@n1"), other, slice(other, "10.2.0.1@n2"))
	b.start(annotation.Settings{PodNetwork: true, BGP: true})
	b.services.LoadPools = func(context.Context) error {
		pools, err := address.ParsePools("20.20.20.1-20.20.20.2", address.ShareAlways)
		b.services.Addresses.SetPools(pools)
		return err
	}
	const all = "20.20.20.2:81=10.2.0.1:8080"
	b.want("two addresses", "20.20.20.1:80=10.1.0.1:8080 "+all, all)
	b.change(other, func() { other.Annotations = map[string]string{annotation.Prefix + "staticIP": "20.20.20.1"} })
	b.wantAccepted(other, address.ReasonConflict, "address 20.20.20.1 belongs to service default/web: by BGP only nodes with pods announce")
	b.change(s, func() { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster })
	woken := b.woken(func() {
		if _, err := b.services.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)}); err != nil {
			t.Fatal(err)
		}
	})
	if !woken["other"] {
		t.Errorf("the Service that waits for the address is not reconciled, others are: %v", woken)
	}
	b.want("one address", "20.20.20.1:80=10.1.0.1:8080 20.20.20.1:81=10.2.0.1:8080")
	b.change(s, func() { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
	b.wantAccepted(s, address.ReasonShared, "address 20.20.20.1 also belongs to service default/other")
}

// TestPortTakenMeanwhile checks that a Service which requests the port of another one on a shared
// address while no controller runs does not get it, whichever of the two is older.
func TestPortTakenMeanwhile(t *testing.T) {
	t.Parallel()
	for _, older := range []string{"web", "other"} {
		s, other := service("web"), service("other")
		for _, one := range []*corev1.Service{s, other} {
			one.CreationTimestamp.Time = time.Now()
			if one.Name == older {
				one.CreationTimestamp.Time = time.Now().Add(-time.Hour)
			}
		}
		other.Spec.Ports[0].Port = 81
		b := newBench(t, s, slice(s, "10.1.0.1@n1"), other, slice(other, "10.1.0.2@n1"))
		b.startShared()
		const both = "20.20.20.1:80=10.1.0.1:8080 20.20.20.1:81=10.1.0.2:8080"
		b.want("one address, two ports", both)
		b.wantStatus(s, "20.20.20.1", reasonProgrammed)
		b.wantStatus(other, "20.20.20.1", reasonProgrammed)
		b.stop()
		b.change(other, func() { other.Spec.Ports[0].Port = 80 })
		b.startShared()
		b.wantAccepted(other, address.ReasonConflict, "port 80/TCP of address 20.20.20.1 belongs to service default/web")
		b.wantAccepted(s, reasonAccepted, "")
		b.want("as before", both)
	}
}

// startShared starts a controller with a single address, which Services share.
func (b *bench) startShared() {
	b.t.Helper()
	b.start(annotation.Settings{PodNetwork: true})
	b.services.LoadPools = func(context.Context) error {
		pools, err := address.ParsePools("20.20.20.1", address.ShareAlways)
		b.services.Addresses.SetPools(pools)
		return err
	}
}

// woken returns the Services that a function schedules to be reconciled.
func (b *bench) woken(do func()) map[string]bool {
	b.t.Helper()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	b.services.SetQueue(queue)
	do()
	woken := map[string]bool{}
	for queue.Len() > 0 {
		request, _ := queue.Get()
		queue.Done(request)
		woken[request.Name] = true
	}
	return woken
}

// TestZoneOfNode checks that a change of a node reconciles those Services with pods as endpoints
// that prefer a zone: a node may get its zone after balancers have its pods.
func TestZoneOfNode(t *testing.T) {
	t.Parallel()
	s, other := service("web"), service("other")
	near := corev1.ServiceTrafficDistributionPreferSameZone
	s.Spec.TrafficDistribution = &near
	b := newBench(t, s, slice(s, "10.1.0.1@n1"), other, slice(other, "10.1.0.2@n1"))
	b.want("both", "20.20.20.1:80=10.1.0.1:8080 20.20.20.2:80=10.1.0.2:8080")
	if woken := b.woken(b.services.NodesChanged); !woken["web"] || woken["other"] {
		t.Errorf("a change of a node reconciles %v, want web", woken)
	}
}

// TestWaitForReserved checks that a Service which waits for the address of a node or a balancer is
// reconciled when nodes or balancers change.
func TestWaitForReserved(t *testing.T) {
	t.Parallel()
	s, n := service("web"), node(1)
	n.Status.Addresses[0].Address = "20.20.20.1"
	b := newBench(t, s, slice(s, "10.1.0.1@n1"), n)
	b.startShared()
	b.wantAccepted(s, address.ReasonExhausted, "no IPv4 address is free")
	for what, change := range map[string]func(){"nodes": b.services.NodesChanged, "balancers": b.services.BalancersChanged} {
		if woken := b.woken(change); !woken["web"] {
			t.Errorf("a change of %s does not reconcile the Service that waits", what)
		}
	}
	if err := b.Delete(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	b.services.NodesChanged()
	b.want("the node's address", "20.20.20.1:80=10.1.0.1:8080")
}
