package controller

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"loxilb/kube/internal/address"
	"loxilb/kube/internal/annotation"
	"loxilb/kube/internal/balancer"
	"loxilb/test/apitest"
	"loxilb/test/await"
)

const patience = 30 * time.Second

// bench is a controller with a fake apiserver, and balancers on nodes n1 and n2 with their real
// API. Tests call reconcile, since nothing watches.
type bench struct {
	client.Client
	t         *testing.T
	balancers []*apitest.Bench
	targets   []balancer.Target
	services  *Services
	stop      func()
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	b := &bench{t: t, stop: func() {}}
	b.Client = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).WithStatusSubresource(&corev1.Service{}).
		WithIndex(&discoveryv1.EndpointSlice{}, serviceIndex, func(o client.Object) []string {
			return []string{o.GetLabels()[discoveryv1.LabelServiceName]}
		}).Build()
	for i := range 2 {
		one := apitest.New(t, nil)
		u, err := url.Parse(one.Serve().URL)
		if err != nil {
			t.Fatal(err)
		}
		c, err := balancer.NewClient(u, balancer.Access{})
		if err != nil {
			t.Fatal(err)
		}
		b.balancers = append(b.balancers, one)
		b.targets = append(b.targets, balancer.Target{URL: u.String(), Node: fmt.Sprint("n", i+1), Client: c})
	}
	t.Cleanup(func() { b.stop() })
	b.start(annotation.Settings{PodNetwork: true})
	return b
}

// start ends the controller, and starts another one, which knows only statuses and balancers.
func (b *bench) start(defaults annotation.Settings) {
	b.t.Helper()
	b.stop()
	pools, err := address.ParsePools("defaultPool=20.20.20.0/29,defaultPool=2001:db8:20::/120", address.ShareNever)
	if err != nil {
		b.t.Fatal(err)
	}
	addresses := address.New()
	s := &Services{
		Client: b.Client, Reader: b.Client, Events: events.NewFakeRecorder(1000), Addresses: addresses, Annotations: annotation.NewReader(),
		Defaults: defaults, Class: "loxilb.io/loxilb", Zone: "llb", Owner: "kube-1", IPMode: corev1.LoadBalancerIPModeProxy,
		LoadPools: func(context.Context) error { addresses.SetPools(pools); return nil }, PoolsChanged: func() {},
	}
	s.Fleet = balancer.NewFleet(balancer.Options{
		Owner: s.Owner, Zone: s.Zone, Changed: s.Enqueue, Log: logr.Discard(),
		Stuck: func(service types.NamespacedName, why string) { s.ReportStuck(context.Background(), service, why) },
	})
	s.Fleet.SetTargets(b.targets)
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan error)
	go func() { ended <- s.Fleet.Start(ctx) }()
	b.services = s
	b.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
		b.stop = func() {}
	}
}

// want reconciles until each balancer has these services, each as VIP:PORT=ENDPOINT,...
func (b *bench) want(what string, lists ...string) {
	b.t.Helper()
	if len(lists) == 1 {
		lists = append(lists, lists[0])
	}
	await.NoError(b.t, patience, func() error {
		b.reconcile()
		for i, want := range lists {
			if got := servicesOf(b.balancers[i]); got != want {
				return fmt.Errorf("%s: balancer %d has %q, want %q", what, i+1, got, want)
			}
		}
		return nil
	})
}

// names returns the names of the Services that tests reconcile, whether they exist or not.
func names() []string { return []string{"web", "other"} }

// reconcile reconciles all Services.
func (b *bench) reconcile() {
	b.t.Helper()
	for _, name := range names() {
		request := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: name}}
		if _, err := b.services.Reconcile(b.t.Context(), request); err != nil {
			b.t.Fatal(err)
		}
	}
}

// servicesOf returns a balancer's services, each as VIP:PORT=ENDPOINT,...
func servicesOf(b *apitest.Bench) string {
	var list []string
	for _, e := range b.List() {
		var endpoints []string
		for _, ep := range e.Endpoints {
			endpoints = append(endpoints, netip.AddrPortFrom(netip.MustParseAddr(ep.EndpointIP), uint16(ep.TargetPort)).String())
		}
		at := netip.AddrPortFrom(netip.MustParseAddr(e.ServiceArguments.ExternalIP), uint16(e.ServiceArguments.Port))
		list = append(list, at.String()+"="+strings.Join(endpoints, ","))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// service returns a Service of the class.
func service(name string) *corev1.Service {
	class := "loxilb.io/loxilb"
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &class, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080, Protocol: corev1.ProtocolTCP}},
		},
	}
}

// slice returns the EndpointSlice of a Service, with ready pods named by address and node.
func slice(s *corev1.Service, pods ...string) *discoveryv1.EndpointSlice {
	name, port, protocol := "", int32(8080), corev1.ProtocolTCP
	out := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name + "-4", Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	}
	for _, pod := range pods {
		addr, node, _ := strings.Cut(pod, "@")
		if strings.Contains(addr, ":") {
			out.Name, out.AddressType = s.Name+"-6", discoveryv1.AddressTypeIPv6
		}
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{Addresses: []string{addr}, NodeName: &node})
	}
	return out
}

// node returns a ready node.
func node(i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), Labels: map[string]string{}}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprint("192.0.2.", i)}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

// change edits the present version of an object.
func (b *bench) change(o client.Object, edit func()) {
	b.t.Helper()
	if err := b.Get(b.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		b.t.Fatal(err)
	}
	edit()
	if err := b.Update(b.t.Context(), o); err != nil {
		b.t.Fatal(err)
	}
}

// wantStatus checks the addresses of a Service, and the reason of its condition Programmed.
func (b *bench) wantStatus(s *corev1.Service, addresses, reason string) {
	b.t.Helper()
	await.NoError(b.t, patience, func() error {
		b.reconcile()
		if err := b.Get(b.t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
			return err
		}
		got := ""
		if c := meta.FindStatusCondition(s.Status.Conditions, conditionProgrammed); c != nil {
			got = c.Reason
		}
		if addressesOf(s) != addresses || got != reason {
			return fmt.Errorf("%s has addresses %q and condition %q, want %q and %q", s.Name, addressesOf(s), got, addresses, reason)
		}
		return nil
	})
}

// TestDualStack checks that each IP family has a VIP with its own endpoints, and keeps it without
// endpoints.
func TestDualStack(t *testing.T) {
	t.Parallel()
	s := service("web")
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	four, six := slice(s, "10.1.0.1@n1"), slice(s, "fd00::1@n1")
	b := newBench(t, s, four, six)
	b.want("both families", "20.20.20.1:80=10.1.0.1:8080 [2001:db8:20::1]:80=[fd00::1]:8080")
	b.wantStatus(s, "2001:db8:20::1, 20.20.20.1", reasonProgrammed)
	b.change(six, func() { six.Endpoints = nil })
	b.want("one without endpoints", "20.20.20.1:80=10.1.0.1:8080 [2001:db8:20::1]:80=")
	b.change(four, func() { four.Endpoints = nil })
	b.want("without endpoints", "20.20.20.1:80= [2001:db8:20::1]:80=")
	b.wantStatus(s, "2001:db8:20::1, 20.20.20.1", reasonNoEndpoint)
}

// TestLocalByBGP checks that with BGP and the policy Local, a balancer has only the pods of its
// node, and no service if only other nodes have pods.
func TestLocalByBGP(t *testing.T) {
	t.Parallel()
	s := service("web")
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	pods := slice(s, "10.1.0.1@n1", "10.2.0.1@n2")
	b := newBench(t, s, pods)
	b.start(annotation.Settings{PodNetwork: true, BGP: true})
	b.want("a pod on each node", "20.20.20.1:80=10.1.0.1:8080", "20.20.20.1:80=10.2.0.1:8080")
	b.change(pods, func() { pods.Endpoints = pods.Endpoints[1:] })
	b.want("a pod on n2", "", "20.20.20.1:80=10.2.0.1:8080")
	b.change(pods, func() { pods.Endpoints = nil })
	b.want("no pod", "20.20.20.1:80=")
}

// TestNodePorts checks which nodes are endpoints as nodes and pods change.
func TestNodePorts(t *testing.T) {
	t.Parallel()
	s, first, second := service("web"), node(1), node(2)
	pods := slice(s, "10.1.0.1@n1")
	b := newBench(t, s, pods, first, second)
	b.start(annotation.Settings{})
	b.want("two nodes", "20.20.20.1:80=192.0.2.1:30080,192.0.2.2:30080")
	for _, tc := range []struct {
		what, want string
		edit       func()
	}{
		{"n1 is excluded", "192.0.2.2:30080", func() { first.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""} }},
		{"n1 is back", "192.0.2.1:30080,192.0.2.2:30080", func() { first.Labels = nil }},
		{"n1 is cordoned", "192.0.2.1:30080,192.0.2.2:30080", func() { first.Spec.Unschedulable = true }},
	} {
		b.change(first, tc.edit)
		b.services.NodesChanged()
		b.want(tc.what, "20.20.20.1:80="+tc.want)
	}
	b.change(s, func() { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
	b.want("Local", "20.20.20.1:80=192.0.2.1:30080")
	ready, serving, ends := false, true, true
	b.change(pods, func() {
		pods.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &ends}
	})
	b.want("the last pod ends and still serves", "20.20.20.1:80=192.0.2.1:30080")
}

// TestChanges changes ports, class and type of a Service. Another Service keeps its address.
func TestChanges(t *testing.T) {
	t.Parallel()
	s, other := service("web"), service("other")
	b := newBench(t, s, slice(s, "10.1.0.1@n1"), other, slice(other, "10.1.0.2@n1"))
	const kept = " 20.20.20.2:80=10.1.0.2:8080"
	b.want("two Services", "20.20.20.1:80=10.1.0.1:8080"+kept)
	b.change(s, func() { s.Spec.Ports[0].Port = 81 })
	b.want("another port", "20.20.20.1:81=10.1.0.1:8080"+kept)
	b.change(s, func() { s.Annotations = map[string]string{"loxilb.io/lbmode": "sideways"} })
	b.want("a wrong annotation changes nothing", "20.20.20.1:81=10.1.0.1:8080"+kept)
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
		t.Fatal(err)
	}
	if c := meta.FindStatusCondition(s.Status.Conditions, conditionAccepted); c == nil || c.Reason != reasonInvalid {
		t.Errorf("condition for a wrong annotation: %+v", c)
	}
	foreign := "example.org/other"
	b.change(s, func() { s.Annotations, s.Spec.LoadBalancerClass = nil, &foreign })
	b.want("another class", strings.TrimSpace(kept))
	b.wantStatus(s, "20.20.20.1", "") // the other controller owns the status
	b.change(s, func() { s.Spec.LoadBalancerClass = other.Spec.LoadBalancerClass })
	b.want("of the class again", "20.20.20.1:81=10.1.0.1:8080"+kept)
	b.change(s, func() { s.Spec.Type = corev1.ServiceTypeClusterIP })
	b.want("another type", strings.TrimSpace(kept))
	b.wantStatus(s, "", "")
	if len(s.Finalizers) > 0 {
		t.Errorf("a Service of another type has finalizers %q", s.Finalizers)
	}
}

// TestRestart deletes a Service while no controller runs. The next controller keeps the addresses
// of other Services, also those of the existing controller, and deletes the remaining services.
func TestRestart(t *testing.T) {
	t.Parallel()
	s, other := service("web"), service("other")
	other.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "llb-20.20.20.5"}}
	b := newBench(t, s, slice(s, "10.1.0.1@n1"), other, slice(other, "10.1.0.2@n1"))
	const kept = "20.20.20.5:80=10.1.0.2:8080"
	b.want("two Services", "20.20.20.1:80=10.1.0.1:8080 "+kept)
	b.wantStatus(other, "20.20.20.5", reasonProgrammed)
	b.stop()
	b.change(s, func() { s.Finalizers = nil })
	if err := b.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	b.start(annotation.Settings{PodNetwork: true})
	b.want("after a restart", kept)
	b.wantStatus(other, "20.20.20.5", reasonProgrammed)
}

// TestOtherControllers checks that a controller, even while it is uninstalled, does not change
// Services of other classes and zones: two controllers would undo each other's writes forever.
func TestOtherControllers(t *testing.T) {
	t.Parallel()
	foreign := "example.org/other"
	for _, tc := range []struct {
		what string
		edit func(*corev1.Service)
	}{
		{"class", func(s *corev1.Service) { s.Spec.LoadBalancerClass = &foreign }},
		{"no class", func(s *corev1.Service) { s.Spec.LoadBalancerClass = nil }},
		{"zone", func(s *corev1.Service) { s.Annotations["loxilb.io/zoneselect"] = "aws" }},
	} {
		s := service("other")
		tc.edit(s)
		s.Finalizers = []string{finalizer}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}}
		for _, kind := range []string{conditionAccepted, conditionProgrammed} {
			meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Made"})
		}
		mine := service("web")
		b := newBench(t, s, mine, slice(mine, "10.1.0.1@n1"))
		b.want(tc.what, "20.20.20.1:80=10.1.0.1:8080")
		check := func(by string) {
			t.Helper()
			b.reconcile()
			var now corev1.Service
			if err := b.Get(t.Context(), client.ObjectKeyFromObject(s), &now); err != nil {
				t.Fatal(err)
			}
			if len(now.Finalizers) != 1 || addressesOf(&now) != "198.51.100.1" || len(now.Status.Conditions) != 2 {
				t.Errorf("%s, %s: the Service has finalizers %q, addresses %q and conditions %+v, want them as they were",
					tc.what, by, now.Finalizers, addressesOf(&now), now.Status.Conditions)
			}
		}
		check("controller")
		b.services.Uninstall = true
		await.NoError(t, patience, func() error {
			check("uninstaller")
			if left, err := b.services.Remaining(t.Context()); left != "" || err != nil {
				return fmt.Errorf("%s: the uninstaller waits for %q (%w)", tc.what, left, err)
			}
			return nil
		})
	}
}
