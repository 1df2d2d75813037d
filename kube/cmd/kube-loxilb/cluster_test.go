package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"loxilb/kube/api/v1alpha1"
	krig "loxilb/kube/test/rig"
	"loxilb/test/await"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// asController is the environment variable that makes this test program run kube-loxilb.
const asController = "TEST_KUBE_LOXILB"

const patience = time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(asController) != "" {
		main()
		return
	}
	os.Exit(rig.Main(m))
}

// cluster is an apiserver without nodes, in the network namespace of a balancer. Tests create the
// objects that kubelets and Kubernetes' controllers would create.
type cluster struct {
	client.Client
	*rig.Rig
	t          *testing.T
	api        *krig.ControlPlane
	controller *netnstest.Process
}

// newCluster starts a balancer and an apiserver, with the custom resources of the chart.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	return newClusterWith(t, krig.ControlPlaneOptions{})
}

// newClusterWith is newCluster with options of the control plane.
func newClusterWith(t *testing.T, o krig.ControlPlaneOptions) *cluster {
	t.Helper()
	c := &cluster{t: t, Rig: rig.New(t, rig.Options{})}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var err error
	o.Dir = t.TempDir()
	c.api, err = krig.StartControlPlane(ctx, c.LB, o)
	if errors.Is(err, krig.ErrNoKubernetes) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	path, err := c.api.Kubeconfig("admin", krig.Admins)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	config.Dial, config.QPS = c.api.DialContext, -1
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	if c.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	c.applyManifest()
	return c
}

// applyManifest creates the objects of the manifest, such as custom resources and rights.
func (c *cluster) applyManifest() {
	c.t.Helper()
	manifest := filepath.Join(rig.Root, "deploy", "kubernetes", "kube-loxilb.yaml")
	if out, err := c.api.Kubectl("apply", "--filename", manifest); err != nil {
		c.t.Fatal(err, out)
	}
	if out, err := c.api.Kubectl("wait", "--for=condition=Established", "crd/addresspools.loxilb.io", "crd/loxiurls.loxiurl.loxilb.io"); err != nil {
		c.t.Fatal(err, out)
	}
}

// run starts the controller with the rights of its ServiceAccount.
func (c *cluster) run(args ...string) {
	c.t.Helper()
	path, err := c.api.Kubeconfig("system:serviceaccount:kube-system:loxilb-controller", "system:authenticated")
	if err != nil {
		c.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	args = append([]string{self, "--kubeconfig=" + path, "--loxiURL=http://127.0.0.1:11111", "--metrics-bind-address=127.0.0.1:8080"}, args...)
	c.controller, err = c.LB.Start(netnstest.Command{Args: args, Env: []string{asController + "=1"}})
	if err != nil {
		c.t.Fatal(err)
	}
	p := c.controller
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.t.Logf("kube-loxilb's log:\n%s", p.Output())
		}
	})
}

// create creates objects.
func (c *cluster) create(list ...client.Object) {
	c.t.Helper()
	for _, o := range list {
		if err := c.Create(c.t.Context(), o); err != nil {
			c.t.Fatal(err)
		}
	}
}

// service returns a Service of the class for ports, with pods as endpoints.
func service(name string, ports ...int32) *corev1.Service {
	class, none := "loxilb.io/loxilb", false
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{}}}
	s.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &class, AllocateLoadBalancerNodePorts: &none,
		Selector: map[string]string{"app": name},
	}
	for _, p := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", p), Port: p})
	}
	return s
}

// endpoints returns the EndpointSlice of a Service with these addresses, at port 8080.
func endpoints(s *corev1.Service, addresses ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Namespace, Name: s.Name + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: s.Name},
	}, AddressType: discoveryv1.AddressTypeIPv4}
	for _, p := range s.Spec.Ports {
		name, port, protocol := p.Name, int32(8080), p.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &name, Port: &port, Protocol: &protocol})
	}
	isReady := true
	for _, a := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: &isReady}})
	}
	return slice
}

// get reads the present version of an object.
func (c *cluster) get(o client.Object) error {
	return c.Get(c.t.Context(), client.ObjectKeyFromObject(o), o)
}

// change edits the present version of an object, again if it has changed meanwhile.
func (c *cluster) change(o client.Object, edit func()) {
	c.t.Helper()
	await.NoError(c.t, patience, func() error {
		if err := c.get(o); err != nil {
			return err
		}
		if o.GetAnnotations() == nil {
			o.SetAnnotations(map[string]string{})
		}
		edit()
		return c.Update(c.t.Context(), o)
	})
}

// addresses returns the addresses of a status, with commas.
func addresses(s *corev1.Service) string {
	var list []string
	for _, in := range s.Status.LoadBalancer.Ingress {
		list = append(list, in.IP)
	}
	return strings.Join(list, ",")
}

// wantAddress waits until the status of a Service has these addresses.
func (c *cluster) wantAddress(s *corev1.Service, want string) {
	c.t.Helper()
	await.NoError(c.t, patience, func() error {
		if err := c.get(s); err != nil {
			return err
		}
		if got := addresses(s); got != want {
			return fmt.Errorf("%s has address %q, want %q; conditions: %+v", s.Name, got, want, s.Status.Conditions)
		}
		return nil
	})
}

// wantCondition waits until a condition of a Service has a reason.
func (c *cluster) wantCondition(s *corev1.Service, kind, reason string) {
	c.t.Helper()
	await.NoError(c.t, patience, func() error {
		if err := c.get(s); err != nil {
			return err
		}
		got := meta.FindStatusCondition(s.Status.Conditions, kind)
		if got == nil || got.Reason != reason {
			return fmt.Errorf("%s: condition %s is %+v, want reason %s", s.Name, kind, got, reason)
		}
		return nil
	})
}

// wantBalancer waits until the balancer's list of services has, or lacks, a text.
func (c *cluster) wantBalancer(text string, has bool) {
	c.t.Helper()
	await.NoError(c.t, patience, func() error {
		list, err := c.Command("get", "lb", "-o", "json")
		if err != nil {
			return err
		}
		if strings.Contains(list, text) != has {
			return fmt.Errorf("the balancer's services have %q: %v; want %v\n%s", text, !has, has, list)
		}
		return nil
	})
}

// wantAnswers waits until requests are answered by these servers and no others.
func (c *cluster) wantAnswers(address string, names ...string) {
	c.t.Helper()
	await.NoError(c.t, patience, func() error {
		got := map[string]bool{}
		for range 2 * len(names) {
			name, err := c.Ask(address)
			if err != nil {
				return err
			}
			got[strings.TrimSpace(name)] = true
		}
		if list := slices.Sorted(maps.Keys(got)); !slices.Equal(list, names) {
			return fmt.Errorf("%s: answered by %q, want %q", address, list, names)
		}
		return nil
	})
}

// wantEvent waits until an event of a Service has a reason.
func (c *cluster) wantEvent(s *corev1.Service, reason string) {
	c.t.Helper()
	await.NoError(c.t, patience, func() error {
		var list corev1.EventList
		if err := c.List(c.t.Context(), &list, client.InNamespace(s.Namespace)); err != nil {
			return err
		}
		var reasons []string
		for _, e := range list.Items {
			if e.InvolvedObject.Name == s.Name && e.Reason == reason {
				return nil
			}
			reasons = append(reasons, e.InvolvedObject.Name+":"+e.Reason)
		}
		return fmt.Errorf("no event %s of %s among %q", reason, s.Name, reasons)
	})
}

// nameHandler answers requests with a name.
func nameHandler(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })
}
