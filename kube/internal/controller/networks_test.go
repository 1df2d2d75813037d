package controller

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"loxilb/kube/internal/annotation"
)

// TestForgedNetworks checks that users of pods, who can write Multus' annotation, cannot make
// addresses of others endpoints of a Service.
func TestForgedNetworks(t *testing.T) {
	t.Parallel()
	s, other, n := service("web"), service("other"), node(1)
	s.Annotations[annotation.Prefix+"multus-nets"] = "fast"
	other.Spec.Type, other.Spec.LoadBalancerClass, other.Spec.ClusterIPs = corev1.ServiceTypeClusterIP, nil, []string{"10.96.0.10"}
	n.Spec.PodCIDRs = []string{"10.2.0.0/24"}
	pods := slice(s, "10.2.0.5@n1")
	pods.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "web-1"}
	theirs := slice(other, "10.1.0.9@n1")
	theirs.Namespace, theirs.Endpoints[0].TargetRef = "their", &corev1.ObjectReference{Kind: "Pod", Name: "db"}
	api := slice(other, "198.51.100.6@n1")
	api.Namespace, api.Labels = "default", map[string]string{discoveryv1.LabelServiceName: "kubernetes"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1"}}
	pod.Status.PodIPs = []corev1.PodIP{{IP: "10.2.0.5"}}
	b := newBench(t, s, other, n, pods, theirs, api, pod)
	for ip, why := range map[string]string{
		"169.254.169.254": "address 169.254.169.254 is in 169.254.0.0/16",
		"127.0.0.1":       "address 127.0.0.1 is in 127.0.0.0/8",
		"192.0.2.1":       "address 192.0.2.1 belongs to node n1",
		"10.2.0.9":        "address 10.2.0.9 belongs to the pods of node n1",
		"10.96.0.10":      "address 10.96.0.10 belongs to Service default/other, as its cluster IP",
		"10.1.0.9":        "address 10.1.0.9 belongs to pod their/db",
		"198.51.100.6":    "address 198.51.100.6 belongs to the apiserver",
	} {
		for recorder := b.services.Events.(*events.FakeRecorder); len(recorder.Events) > 0; {
			<-recorder.Events
		}
		b.change(pod, func() {
			pod.Annotations = map[string]string{networkStatus: fmt.Sprintf(`[{"name":"default/fast","ips":["10.2.0.5","172.16.0.7",%q]}]`, ip)}
		})
		b.want(ip, "20.20.20.1:80=10.2.0.5:8080,172.16.0.7:8080")
		b.wantEvent(reasonEndpoint, why)
	}
}
