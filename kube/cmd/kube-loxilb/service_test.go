package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"loxilb/kube/api/v1alpha1"
	"loxilb/test/await"
)

// TestLifeOfServices creates, changes and deletes Services, with a real apiserver, a real balancer,
// and the controller's own rights.
func TestLifeOfServices(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for i, h := range c.Endpoints {
		name := fmt.Sprint("ep", i+1)
		if err := h.ServeHTTPWith(":8080", nameHandler(name)); err != nil {
			t.Fatal(err)
		}
	}
	c.create(&v1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: v1alpha1.AddressPoolSpec{Addresses: []string{"20.20.20.1-20.20.20.2"}}})
	web := service("web", 80)
	c.create(web, endpoints(web, "31.31.31.1"))
	c.run()

	c.wantAddress(web, "20.20.20.1")
	c.wantCondition(web, "loxilb.io/Programmed", "Programmed")
	c.wantAnswers("20.20.20.1:80", "ep1")
	if len(web.Finalizers) != 1 || web.Finalizers[0] != "service.kubernetes.io/load-balancer-cleanup" {
		t.Errorf("finalizers are %q", web.Finalizers)
	}

	c.testEndpoints(t, web)
	c.testWrongAnnotation(web)
	c.testPorts(t, web)
	c.testPool(t)
	c.testDrift(t)
	c.testAway(t, web)
	mine := c.testType(t, web)
	c.testLast(t, mine, web)
}

// testEndpoints checks that the balancer gets a changed EndpointSlice.
func (c *cluster) testEndpoints(t *testing.T, web *corev1.Service) {
	slice := endpoints(web)
	if err := c.get(slice); err != nil {
		t.Fatal(err)
	}
	slice.Endpoints = endpoints(web, "31.31.31.1", "32.32.32.1").Endpoints
	if err := c.Update(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c.wantBalancer(`"32.32.32.1"`, true)
	took := time.Since(began)
	t.Logf("a new endpoint was in the balancer after %v", took)
	c.wantAnswers("20.20.20.1:80", "ep1", "ep2")
}

// testWrongAnnotation checks that a wrong value changes nothing, and that endpoints are still
// updated.
func (c *cluster) testWrongAnnotation(web *corev1.Service) {
	c.change(web, func() { web.Annotations["loxilb.io/lbmode"] = "sideways" })
	c.wantCondition(web, "loxilb.io/Accepted", "InvalidAnnotation")
	c.wantEvent(web, "InvalidAnnotation")
	slice := endpoints(web)
	c.change(slice, func() { slice.Endpoints = endpoints(web, "32.32.32.1", "17.17.17.1").Endpoints })
	c.wantBalancer(`"17.17.17.1"`, true)
	c.wantAnswers("20.20.20.1:80", "ep2", "ep3")
	c.change(web, func() { web.Annotations["loxilb.io/lbmode"] = "onearm" })
	c.wantCondition(web, "loxilb.io/Accepted", "Accepted")
	c.wantBalancer(`"mode": 1`, true)
	c.change(web, func() { delete(web.Annotations, "loxilb.io/lbmode") })
	c.wantBalancer(`"mode": 1`, false)
}

// testPorts changes ports and source ranges of a Service.
func (c *cluster) testPorts(t *testing.T, web *corev1.Service) {
	slice := endpoints(web)
	c.change(web, func() { web.Spec.Ports[0].Port = 81 })
	c.wantBalancer(`"port": 81`, true)
	c.wantBalancer(`"port": 80`, false)
	c.wantAnswers("20.20.20.1:81", "ep2", "ep3")
	c.change(web, func() { web.Spec.LoadBalancerSourceRanges = []string{"9.0.0.0/8"} })
	c.wantBalancer("9.0.0.0/8", true)
	c.change(web, func() { web.Spec.LoadBalancerSourceRanges, web.Spec.Ports[0].Port = nil, 80 })
	c.wantBalancer("9.0.0.0/8", false)
	if err := c.get(slice); err != nil {
		t.Fatal(err)
	}
	c.wantAnswers("20.20.20.1:80", "ep2", "ep3")
}

// testPool uses up a pool, and checks that a Service waits until an address is free.
func (c *cluster) testPool(t *testing.T) {
	second, third := service("second", 80), service("third", 80)
	c.create(second)
	c.wantAddress(second, "20.20.20.2")
	c.create(third)
	c.wantCondition(third, "loxilb.io/Accepted", "AddressesExhausted")
	c.wantEvent(third, "AddressesExhausted")
	pool := &v1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: "small"}}
	await.NoError(t, patience, func() error {
		if err := c.get(pool); err != nil {
			return err
		}
		if u := pool.Status.IPv4; u == nil || u.Total != 2 || u.Used != 2 || pool.Status.Services != 2 {
			return fmt.Errorf("the status of the pool is %+v", pool.Status)
		}
		return nil
	})
	overlapping := &v1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: "twin"}, Spec: v1alpha1.AddressPoolSpec{Addresses: []string{"20.20.20.0/24"}}}
	c.create(overlapping)
	await.NoError(t, patience, func() error {
		if err := c.get(overlapping); err != nil {
			return err
		}
		for _, cond := range overlapping.Status.Conditions {
			if cond.Type == "Ready" && cond.Reason == "Conflict" && strings.Contains(cond.Message, "small") {
				return nil
			}
		}
		return fmt.Errorf("conditions of an overlapping pool: %+v", overlapping.Status.Conditions)
	})
	if err := c.Delete(t.Context(), overlapping); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	c.wantAddress(third, "20.20.20.2")
	c.wantBalancer("default_second", false)
	if err := c.Delete(t.Context(), third); err != nil {
		t.Fatal(err)
	}
	await.True(t, patience, "the removal of the finalizer", func() bool { return apierrors.IsNotFound(c.get(third)) })
}

// testDrift deletes a service from the balancer, which the controller creates again. A user's own
// service stays, and keeps its address and port.
func (c *cluster) testDrift(t *testing.T) {
	c.Loxicmd("create lb 20.20.20.9 --tcp=99:9 --endpoints=31.31.31.1:1 --name=mine")
	c.Loxicmd("delete lb 20.20.20.1 --tcp=80")
	c.wantBalancer(`"default_web:llb-inst0"`, true)
	c.wantBalancer(`"mine"`, true)
	taken := service("taken", 99)
	taken.Annotations["metallb.io/loadBalancerIPs"] = "20.20.20.9"
	c.create(taken, endpoints(taken, "31.31.31.1"))
	c.wantCondition(taken, "loxilb.io/Programmed", "Refused")
	c.wantBalancer(`"mine"`, true)
	c.Loxicmd("delete lb 20.20.20.9 --tcp=99")
	c.wantAddress(taken, "20.20.20.9")
	if err := c.Delete(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	c.wantBalancer("default_taken", false)
}

// testAway deletes and creates Services while no controller runs. The next one updates the
// balancer, and keeps the addresses.
func (c *cluster) testAway(t *testing.T, web *corev1.Service) {
	gone := service("gone", 80)
	c.create(gone, endpoints(gone, "31.31.31.1"))
	c.wantAddress(gone, "20.20.20.2")
	c.controller.Kill()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := c.Patch(t.Context(), gone, patch); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	// This Service would get the address of web if the controller did not restore addresses first.
	early := service("early", 80)
	c.create(early, endpoints(early, "31.31.31.1"))
	// Addresses in statuses of the existing controller are kept, too.
	old := service("old", 80)
	c.create(old, endpoints(old, "31.31.31.1"))
	old.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "llb-20.20.20.7"}}
	if err := c.Status().Update(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	c.wantAnswers("20.20.20.1:80", "ep2", "ep3")
	c.run("--leader-elect=false")
	c.wantAddress(early, "20.20.20.2")
	c.wantAddress(old, "20.20.20.7")
	c.wantBalancer("default_gone", false)
	c.wantAddress(web, "20.20.20.1")
	c.wantAnswers("20.20.20.1:80", "ep2", "ep3")
	for _, s := range []*corev1.Service{early, old} {
		if err := c.Delete(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	c.wantBalancer("default_old", false)
}

// testType changes the type and the class of a Service.
func (c *cluster) testType(t *testing.T, web *corev1.Service) (mine *corev1.Service) {
	c.change(web, func() {
		web.Spec.Type, web.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil
		web.Spec.AllocateLoadBalancerNodePorts = nil
	})
	c.wantBalancer("default_web", false)
	c.wantAddress(web, "")
	await.True(t, patience, "the removal of the finalizer", func() bool { return c.get(web) == nil && len(web.Finalizers) == 0 && len(web.Status.Conditions) == 0 })
	other := "example.com/other"
	c.change(web, func() { web.Spec.Type, web.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, &other })
	mine = service("mine", 80)
	c.create(mine)
	c.wantAddress(mine, "20.20.20.1") // it was released, and the Service of another class does not get it
	if err := c.get(web); err != nil || len(web.Finalizers) > 0 || addresses(web) != "" {
		t.Errorf("a Service of another class has finalizers %q and addresses %q (%v)", web.Finalizers, addresses(web), err)
	}
	return mine
}

// testLast deletes all Services while no controller runs. The next one removes them from the
// balancer.
func (c *cluster) testLast(t *testing.T, all ...*corev1.Service) {
	c.wantBalancer("default_mine", true)
	c.controller.Kill()
	for _, s := range all {
		if err := c.Patch(t.Context(), s, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			t.Fatal(err)
		}
		if err := c.Delete(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	c.run("--leader-elect=false")
	c.wantBalancer("default_mine", false)
}
