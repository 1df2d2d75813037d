package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"loxilb/kube/api/v1alpha1"
	"loxilb/test/await"
)

// TestChurn repeatedly creates and deletes Services with the same names while the controller works
// on them, and changes the type of another one. No deleted Service is left on the balancer, in the
// cluster or in the pool.
func TestChurn(t *testing.T) {
	t.Parallel()
	const names, rounds = 100, 10
	c := newCluster(t)
	c.create(&v1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Spec: v1alpha1.AddressPoolSpec{Addresses: []string{"20.20.20.0/24"}}})
	c.run("--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0")
	flapping := service("flapping", 80)
	c.create(flapping, endpoints(flapping, "31.31.31.1"))
	var all sync.WaitGroup
	for i := range names {
		all.Go(func() {
			for range rounds {
				s := service(fmt.Sprint("s", i), 80)
				if err := c.Create(t.Context(), s); err != nil && !apierrors.IsAlreadyExists(err) {
					t.Errorf("create %s: %v", s.Name, err)
				}
				if err := c.Delete(t.Context(), s); err != nil && !apierrors.IsNotFound(err) {
					t.Errorf("delete %s: %v", s.Name, err)
				}
			}
		})
	}
	all.Go(func() {
		class := flapping.Spec.LoadBalancerClass
		for i := range 2 * rounds {
			c.change(flapping, func() {
				flapping.Spec.Type, flapping.Spec.LoadBalancerClass, flapping.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeLoadBalancer, class, new(bool)
				if i%2 == 0 {
					flapping.Spec.Type, flapping.Spec.LoadBalancerClass, flapping.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeClusterIP, nil, nil
				}
			})
		}
	})
	all.Wait()
	await.NoError(t, patience, func() error {
		var list corev1.ServiceList
		if err := c.List(t.Context(), &list, client.InNamespace("default")); err != nil {
			return err
		}
		for i := range list.Items {
			if s := &list.Items[i]; s.Name != "flapping" && s.Name != "kubernetes" {
				return fmt.Errorf("Service %s is left, with finalizers %q", s.Name, s.Finalizers)
			}
		}
		return nil
	})
	c.wantCondition(flapping, "loxilb.io/Programmed", "Programmed")
	c.wantBalancer("default_s", false)
	c.wantBalancer("default_flapping", true)
	pool := &v1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: "pool"}}
	await.NoError(t, patience, func() error {
		if err := c.get(pool); err != nil {
			return err
		}
		if u := pool.Status.IPv4; u == nil || u.Used != 1 || pool.Status.Services != 1 {
			return fmt.Errorf("the status of the pool is %+v, %+v", pool.Status.IPv4, pool.Status)
		}
		return nil
	})
}

// TestCRDDeleted deletes the CRD of pools while a Service has an address of a pool. The Service
// keeps it, and follows its endpoints; a new Service waits until CRD and pool exist again. Names
// have the maximum length.
func TestCRDDeleted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	pool := func() *v1alpha1.AddressPool {
		return &v1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Spec: v1alpha1.AddressPoolSpec{Addresses: []string{"20.20.20.0/29"}}}
	}
	c.create(pool())
	c.run("--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0")
	long := strings.Repeat("n", 63)
	c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: long}})
	web := service(long, 80)
	web.Namespace = long
	slice := endpoints(web, "31.31.31.1")
	c.create(web, slice)
	c.wantAddress(web, "20.20.20.1")
	c.wantCondition(web, "loxilb.io/Programmed", "Programmed")

	if out, err := c.api.Kubectl("delete", "crd", "addresspools.loxilb.io"); err != nil {
		t.Fatal(err, out)
	}
	c.wantCondition(web, "loxilb.io/Accepted", "AddressOutsidePool")
	c.change(slice, func() { slice.Endpoints = endpoints(web, "32.32.32.1").Endpoints })
	c.wantBalancer(`"32.32.32.1"`, true)
	waits := service("waits", 80)
	c.create(waits, endpoints(waits, "31.31.31.1"))
	c.wantCondition(waits, "loxilb.io/Accepted", "NoPool")
	c.wantAddress(web, "20.20.20.1")

	c.applyManifest()
	await.NoError(t, patience, func() error { return c.Create(t.Context(), pool()) })
	c.wantAddress(waits, "20.20.20.2")
	c.wantCondition(web, "loxilb.io/Accepted", "Accepted")
}

// TestCRDCreated creates the CRD of pools while the controller runs, so a waiting Service gets an
// address.
func TestCRDCreated(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	if out, err := c.api.Kubectl("delete", "crd", "addresspools.loxilb.io"); err != nil {
		t.Fatal(err, out)
	}
	c.run("--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0")
	web := service("web", 80)
	c.create(web, endpoints(web, "31.31.31.1"))
	c.wantCondition(web, "loxilb.io/Accepted", "NoPool")
	c.applyManifest()
	c.create(&v1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Spec: v1alpha1.AddressPoolSpec{Addresses: []string{"20.20.20.0/29"}}})
	c.wantAddress(web, "20.20.20.1")
}
