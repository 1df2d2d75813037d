package main

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	krig "loxilb/kube/test/rig"
	"loxilb/test/await"
)

// TestManyPods runs Kubernetes' own controller of EndpointSlices for many Services with five pods
// each, and plays the kubelets of many nodes. It measures how long kube-loxilb takes to serve the
// Services: new ones, pods with new addresses, and after a restart, which changes nothing in the
// cluster or on the balancer. LONG=1: 200 nodes, 5,000 pods, 1,000 Services.
func TestManyPods(t *testing.T) {
	nodes, services := 10, 40
	if os.Getenv("LONG") != "" {
		nodes, services = 200, 1000
	}
	c := newClusterWith(t, krig.ControlPlaneOptions{Controllers: true, Only: []string{"endpointslice-controller"}})
	c.createMany(t, nodes, func(i int) []client.Object {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
		n.Spec.PodCIDRs = []string{fmt.Sprintf("10.%d.%d.0/24", 128+i/256, i%256)}
		n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
		return []client.Object{n}
	})
	if err := c.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	const perService = 5
	c.createMany(t, services, func(i int) []client.Object { return []client.Object{service(fmt.Sprintf("s%04d", i), 80)} })
	c.createMany(t, services*perService, func(i int) []client.Object { return []client.Object{pod(i, perService, nodes)} })
	c.startPods(t, services*perService, nodes, 1)
	await.NoError(t, 10*patience, func() error { return c.sliced(services * perService) })
	t.Logf("Kubernetes has %d nodes, %d pods and the EndpointSlices of %d Services after %v", nodes, services*perService, services, time.Since(began).Round(time.Second))

	args := []string{"--cidrPools=20.20.0.0/16", "--setUniqueIP", "--leader-elect=false"}
	run := func(what string) {
		began := time.Now()
		c.run(args...)
		await.NoError(t, 2*patience, func() error { return c.allServed(services) })
		took, memory := time.Since(began), c.memory(t)
		t.Logf("%s: all Services are served after %v, with %d MB", what, took.Round(time.Millisecond), memory>>20)
		if took > patience || memory > 100<<20 {
			t.Errorf("%s: %v and %d MB are too much", what, took, memory>>20)
		}
	}
	run("new Services")
	c.wantCondition(service("s0000", 80), "loxilb.io/Programmed", "Programmed")

	began = time.Now()
	c.startPods(t, perService, nodes, 100) // of the first Service
	for node := range perService {         // each pod is on another node; their EndpointSlice may change in several steps
		c.wantBalancer(fmt.Sprintf(`"10.128.%d.100"`, node), true)
	}
	t.Logf("pods with new addresses: served after %v", time.Since(began).Round(time.Millisecond))

	await.NoError(t, patience, func() error { return c.programmed(services) })
	c.controller.Stop()
	before, revision := c.versions(t), c.Loxicmd("get revision -o json")
	run("after a restart")
	time.Sleep(3 * time.Second) // more than a poll of the balancer
	if after := c.versions(t); after != before {
		t.Errorf("a restart has changed Services: their versions were %.200q and are %.200q", before, after)
	}
	if now := c.Loxicmd("get revision -o json"); now != revision {
		t.Errorf("a restart has changed the balancer:\n%.500s\nbefore:\n%.500s", now, revision)
	}
}

// createMany creates the objects of 0 to n-1, several at a time.
func (c *cluster) createMany(t *testing.T, n int, objects func(i int) []client.Object) {
	t.Helper()
	each(n, func(i int) {
		for _, o := range objects(i) {
			if err := c.Create(t.Context(), o); err != nil {
				t.Error(err)
			}
		}
	})
}

// each calls a function for 0 to n-1, 16 at a time.
func each(n int, do func(i int)) {
	next := make(chan int)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
}

// pod returns a pod of a Service, on one of the nodes.
func pod(i, perService, nodes int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: fmt.Sprint("p", i), Labels: map[string]string{"app": fmt.Sprintf("s%04d", i/perService)},
	}}
	p.Spec.NodeName = fmt.Sprint("n", i%nodes)
	p.Spec.Containers = []corev1.Container{{Name: "web", Image: "localhost/web:1"}}
	return p
}

// startPods makes pods run and be ready, as the kubelets of their nodes would. first is the last
// byte of a node's first pod address.
func (c *cluster) startPods(t *testing.T, n, nodes, first int) {
	t.Helper()
	each(n, func(i int) {
		node := i % nodes
		p := pod(i, 1, nodes)
		patch := fmt.Sprintf(`{"status":{"phase":"Running","podIP":%[1]q,"podIPs":[{"ip":%[1]q}],"conditions":[{"type":"Ready","status":"True"}]}}`,
			fmt.Sprintf("10.%d.%d.%d", 128+node/256, node%256, first+i/nodes))
		if err := c.Status().Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Error(err)
		}
	})
}

// sliced returns an error unless EndpointSlices have n ready endpoints.
func (c *cluster) sliced(n int) error {
	var list discoveryv1.EndpointSliceList
	if err := c.List(c.t.Context(), &list, client.InNamespace("default")); err != nil {
		return err
	}
	ready := 0
	for i := range list.Items {
		for _, e := range list.Items[i].Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready && e.TargetRef != nil {
				ready++
			}
		}
	}
	if ready != n {
		return fmt.Errorf("%d of %d pods are in EndpointSlices", ready, n)
	}
	return nil
}

// programmed returns an error unless n Services have the condition Programmed.
func (c *cluster) programmed(n int) error {
	var list corev1.ServiceList
	if err := c.List(c.t.Context(), &list, client.InNamespace("default")); err != nil {
		return err
	}
	for i := range list.Items {
		for _, condition := range list.Items[i].Status.Conditions {
			if condition.Type == "loxilb.io/Programmed" && condition.Reason == "Programmed" {
				n--
			}
		}
	}
	if n != 0 {
		return fmt.Errorf("%d Services are not programmed", n)
	}
	return nil
}

// versions returns the names and versions of all Services, and the number of events.
func (c *cluster) versions(t *testing.T) (text string) {
	t.Helper()
	var list corev1.ServiceList
	var events corev1.EventList
	for _, l := range []client.ObjectList{&list, &events} {
		if err := c.List(t.Context(), l, client.InNamespace("default")); err != nil {
			t.Fatal(err)
		}
	}
	for i := range list.Items {
		text += list.Items[i].Name + ":" + list.Items[i].ResourceVersion + " "
	}
	return text + fmt.Sprint(len(events.Items), " events")
}
