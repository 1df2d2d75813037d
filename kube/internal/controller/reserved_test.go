package controller

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"loxilb/kube/internal/address"
	"loxilb/kube/internal/annotation"
)

// wantAccepted checks the condition Accepted of a Service, and that an event has the same message.
func (b *bench) wantAccepted(s *corev1.Service, reason, message string) {
	b.t.Helper()
	b.reconcile()
	if err := b.Get(b.t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
		b.t.Fatal(err)
	}
	c := meta.FindStatusCondition(s.Status.Conditions, conditionAccepted)
	if c == nil || c.Reason != reason || !strings.Contains(c.Message, message) {
		b.t.Errorf("the condition is %+v, want reason %s and a message with %q", c, reason, message)
	}
	var sent []string
	for recorder := b.services.Events.(*events.FakeRecorder); len(recorder.Events) > 0; {
		sent = append(sent, <-recorder.Events)
	}
	if message != "" && !slices.ContainsFunc(sent, func(e string) bool { return strings.Contains(e, reason) && strings.Contains(e, message) }) {
		b.t.Errorf("events are %q, want reason %s and a message with %q", sent, reason, message)
	}
}

// TestAddressesOfOthers checks that a Service cannot request addresses of nodes, pods and other
// Services, nor those that no Service can have, and that it keeps its address meanwhile.
func TestAddressesOfOthers(t *testing.T) {
	t.Parallel()
	s, other, n := service("web"), service("other"), node(1)
	other.Spec.Type, other.Spec.LoadBalancerClass, other.Spec.ClusterIPs = corev1.ServiceTypeClusterIP, nil, []string{"10.96.0.10"}
	pods := slice(other, "10.1.0.1@n1", "10.1.0.9@n1", "10.1.0.9@n1")
	for i, name := range []string{"other-1", "host-2", "host-1"} {
		pods.Endpoints[i].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: name}
	}
	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "198.51.100.1"})
	n.Spec.PodCIDRs = []string{"10.2.0.0/24"}
	cloud := service("cloud")
	cloud.Spec.LoadBalancerClass, cloud.Status.LoadBalancer.Ingress = nil, []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}
	b := newBench(t, s, slice(s, "10.1.0.2@n1"), other, cloud, pods, n)
	b.want("an address of the pool", "20.20.20.1:80=10.1.0.2:8080")
	for asked, why := range map[string]string{
		"192.0.2.1":    "address 192.0.2.1 belongs to node n1",
		"198.51.100.1": "address 198.51.100.1 belongs to node n1",
		"10.2.0.7":     "address 10.2.0.7 belongs to the pods of node n1",
		"10.1.0.1":     "address 10.1.0.1 belongs to pod default/other-1",
		"10.1.0.9":     "address 10.1.0.9 belongs to pod default/host-1",
		"10.96.0.10":   "address 10.96.0.10 belongs to Service default/other, as its cluster IP",
		"203.0.113.1":  "address 203.0.113.1 belongs to Service default/cloud of another load balancer",
		"127.0.0.1":    "address 127.0.0.1 is in 127.0.0.0/8, which no service can have",
		"169.254.1.1":  "address 169.254.1.1 is in 169.254.0.0/16, which no service can have",
		"224.0.0.1":    "address 224.0.0.1 is in 224.0.0.0/3, which no service can have",
	} {
		for _, ask := range []func(){
			func() { s.Annotations = map[string]string{annotation.Prefix + "staticIP": asked} },
			func() { s.Annotations = map[string]string{annotation.Prefix + "secondaryIPs": asked} },
			func() { s.Spec.LoadBalancerIP = asked },
		} {
			b.change(s, ask)
			b.wantAccepted(s, address.ReasonInvalid, why)
			b.want(asked+" is refused", "20.20.20.1:80=10.1.0.2:8080")
			b.change(s, func() { s.Annotations, s.Spec.LoadBalancerIP = nil, "" })
			b.wantAccepted(s, reasonAccepted, "")
		}
	}
	b.wantStatus(s, "20.20.20.1", reasonProgrammed)
}

// TestPoolShrinks checks that a Service keeps an address which its pool no longer has, also after a
// restart, with a condition and an event.
func TestPoolShrinks(t *testing.T) {
	t.Parallel()
	s := service("web")
	s.Annotations[annotation.Prefix+"poolSelect"] = "defaultPool"
	b := newBench(t, s, slice(s, "10.1.0.2@n1"))
	b.want("an address of the pool", "20.20.20.1:80=10.1.0.2:8080")
	b.wantStatus(s, "20.20.20.1", reasonProgrammed)
	smaller, err := address.ParsePools("defaultPool=20.20.20.4/30", address.ShareNever)
	if err != nil {
		t.Fatal(err)
	}
	for _, restart := range []bool{false, true} {
		if restart {
			b.change(s, func() { meta.RemoveStatusCondition(&s.Status.Conditions, conditionAccepted) })
			if err := b.Status().Update(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			b.start(annotation.Settings{PodNetwork: true})
			b.reconcile()
		}
		b.services.Addresses.SetPools(smaller)
		b.wantAccepted(s, address.ReasonOutside, "address 20.20.20.1 is not in pool")
		b.want("the pool is smaller", "20.20.20.1:80=10.1.0.2:8080")
		b.wantStatus(s, "20.20.20.1", reasonProgrammed)
	}
}
