package controller

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"loxilb/kube/internal/address"
	"loxilb/kube/internal/annotation"
	"loxilb/kube/internal/balancer"
)

// TestSourceRanges checks that a Service with an invalid source range is not served, or keeps its
// last valid version.
func TestSourceRanges(t *testing.T) {
	t.Parallel()
	s, other := service("web"), service("other")
	other.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"}
	s.Spec.LoadBalancerSourceRanges = []string{"010.0.0.0/8"}
	b := newBench(t, s, slice(s, "10.1.0.1@n1"), other, slice(other, "10.1.0.2@n1"))
	b.want("the valid Service", "20.20.20.1:80=10.1.0.2:8080")
	b.wantAccepted(s, reasonInvalid, `loadBalancerSourceRanges has "010.0.0.0/8", which is not a prefix such as 192.0.2.0/24`)
	b.change(other, func() { other.Spec.LoadBalancerSourceRanges = []string{"0x0a.0.0.0/8"} })
	b.reconcile()
	for _, e := range b.balancers[0].List() {
		if len(e.AllowedSources) != 1 || e.AllowedSources[0].Prefix != "10.0.0.0/8" {
			t.Errorf("the service is open to %v", e.AllowedSources)
		}
	}
}

// TestInstances checks that a Service cannot select an instance that does not exist.
func TestInstances(t *testing.T) {
	t.Parallel()
	s := service("web")
	s.Annotations[annotation.Prefix+"zoneinstance"] = "2"
	b := newBench(t, s, slice(s, "10.1.0.1@n1"))
	b.want("without roles", "20.20.20.1:80=10.1.0.1:8080")
	b.wantStatus(s, "20.20.20.1", reasonProgrammed) // otherwise the status could still be Pending after stop
	b.stop()
	b.services.Fleet.Roles = balancer.Roles{VIP: netip.IPv4Unspecified(), Instances: 2}
	b.wantAccepted(s, reasonInvalid, "annotation loxilb.io/zoneinstance: 2 is no instance, as --numZoneInstances is 2")
	b.change(s, func() { s.Annotations[annotation.Prefix+"zoneinstance"] = "1" })
	b.wantAccepted(s, reasonAccepted, "")
}

// TestHostMode checks that DenyHostMode refuses mode hostonearm, unless it is the default.
func TestHostMode(t *testing.T) {
	t.Parallel()
	s := service("web")
	s.Annotations[annotation.Prefix+"lbmode"] = "5" // the existing controller's number
	b := newBench(t, s, slice(s, "10.1.0.1@n1"))
	b.want("it is allowed", "20.20.20.1:80=10.1.0.1:8080")
	b.services.DenyHostMode = true
	b.change(s, func() { s.Annotations[annotation.Prefix+"lbmode"] = "hostonearm" })
	b.wantAccepted(s, reasonInvalid, "hostonearm takes ports of all addresses of the nodes, which the controller's flag --deny-hostonearm forbids")
	b.start(annotation.Settings{PodNetwork: true, Mode: annotation.HostMode})
	b.want("it is the default", "20.20.20.1:80=10.1.0.1:8080")
}

// TestProbesOfNodes checks that probes send bytes of a Service's choice only to its own node ports:
// at other ports of nodes they could be a request to the API of another balancer.
func TestProbesOfNodes(t *testing.T) {
	t.Parallel()
	s := service("web")
	b := newBench(t, s, node(1))
	b.start(annotation.Settings{Monitor: true})
	b.wantStatus(s, "20.20.20.1", reasonProgrammed)
	for _, tc := range []struct{ kind, port, request, refusal string }{
		{"tcp", "11111", "POST /netlox/v1/config/loadbalancer HTTP/1.1", "probereq: port 11111 of the nodes is no node port of the Service"},
		{"", "10250", "POST", "probereq: port 10250 of the nodes"},
		{"udp", "8472", "x", "probereq: port 8472 of the nodes"},
		{"tcp", "30080", "PING", ""},
		{"tcp", "", "PING", ""},
		{"tcp", "10256", "", ""},
		{"http", "10256", "/healthz", ""},
	} {
		b.change(s, func() {
			s.Annotations = map[string]string{}
			for name, v := range map[string]string{"probetype": tc.kind, "probeport": tc.port, "probereq": tc.request} {
				if v != "" {
					s.Annotations[annotation.Prefix+name] = v
				}
			}
		})
		if tc.refusal != "" {
			b.wantAccepted(s, reasonInvalid, tc.refusal)
			continue
		}
		b.wantAccepted(s, reasonAccepted, "")
	}
	b.change(s, func() {
		s.Annotations = map[string]string{annotation.Prefix + "usepodnetwork": "yes", annotation.Prefix + "probeport": "9000", annotation.Prefix + "probereq": "x"}
	})
	b.wantAccepted(s, reasonAccepted, "")
}

// TestRetries checks the pause between retries of a Service that has failed for an hour.
func TestRetries(t *testing.T) {
	t.Parallel()
	o, request := options(1), reconcile.Request{}
	for tried := time.Duration(0); tried < time.Hour; {
		tried += o.RateLimiter.When(request)
	}
	if wait := o.RateLimiter.When(request); wait > maxRetry {
		t.Errorf("the controller waits for %v, want %v at most", wait, maxRetry)
	}
	o.RateLimiter.Forget(request)
	if wait := o.RateLimiter.When(request); wait > minRetry {
		t.Errorf("after a success, it waits for %v, want %v", wait, minRetry)
	}
}

// TestSelections checks that a Service may select any algorithm of balancers. A balancer refuses it
// if it does not fit the ports.
func TestSelections(t *testing.T) {
	t.Parallel()
	s := service("web")
	s.Annotations[annotation.Prefix+"epselect"] = "n3"
	s.Spec.Ports = []corev1.ServicePort{{Port: 2152, Protocol: corev1.ProtocolUDP}}
	pods, udp := slice(s, "10.1.0.1@n1"), corev1.ProtocolUDP
	pods.Ports[0].Protocol = &udp
	b := newBench(t, s, pods)
	b.want("GTP-U", "20.20.20.1:2152=10.1.0.1:8080")
	if got := b.balancers[0].List()[0].ServiceArguments.Sel; got != "7" { // its number in the API
		t.Errorf("the algorithm is %q", got)
	}
	b.wantStatus(s, "20.20.20.1", reasonProgrammed)
	b.change(s, func() { s.Spec.Ports[0].Port = 2153 })
	b.wantStatus(s, "20.20.20.1", reasonRefused)
	c := meta.FindStatusCondition(s.Status.Conditions, conditionProgrammed)
	if want := `"n3" is for GTP-U, and the service's port is 2153`; !strings.Contains(c.Message, want) {
		t.Errorf("the message is %q, want one with %q", c.Message, want)
	}
}

// TestBalancersOutside checks that a Service cannot request the address of a balancer outside of
// the cluster, where administrators log in.
func TestBalancersOutside(t *testing.T) {
	t.Parallel()
	s := service("web")
	b := newBench(t, s, slice(s, "10.1.0.1@n1"))
	b.want("an address of the pool", "20.20.20.1:80=10.1.0.1:8080")
	b.wantStatus(s, "20.20.20.1", reasonProgrammed)
	b.stop() // so nobody connects to the balancer
	u, err := balancer.ParseURL("http://198.51.100.9")
	if err != nil {
		t.Fatal(err)
	}
	c, err := balancer.NewClient(u, balancer.Access{})
	if err != nil {
		t.Fatal(err)
	}
	targets := append(slices.Clone(b.targets), balancer.Target{URL: u.String(), Client: c})
	if !b.services.Fleet.SetTargets(targets) || b.services.Fleet.SetTargets(targets) {
		t.Error("SetTargets reports no change for a new balancer, or a change for the same ones")
	}
	b.services.BalancersChanged()
	b.change(s, func() { s.Annotations = map[string]string{annotation.Prefix + "staticIP": "198.51.100.9"} })
	b.wantAccepted(s, address.ReasonInvalid, "address 198.51.100.9 belongs to balancer http://198.51.100.9:11111")
}

// TestDiscovery checks that a pod with addresses of two families is one balancer.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	s := service("balancers")
	six, four := slice(s, "2001:db8::1@n1", "2001:db8::2@n2"), slice(s, "192.0.2.1@n1")
	for _, list := range []*discoveryv1.EndpointSlice{six, four} {
		for i := range list.Endpoints {
			list.Endpoints[i].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "loxilb-" + *list.Endpoints[i].NodeName}
		}
	}
	b := newBench(t, six, four)
	targets := &Targets{Client: b.Client, Discovery: client.ObjectKeyFromObject(s), Scheme: "http", Port: "11111"}
	urls, nodes, err := targets.discover(t.Context())
	if want := []string{"http://192.0.2.1:11111", "http://[2001:db8::2]:11111"}; err != nil || !slices.Equal(urls, want) || nodes[urls[1]] != "n2" {
		t.Errorf("balancers are %q, want %q (%v)", urls, want, err)
	}
}
