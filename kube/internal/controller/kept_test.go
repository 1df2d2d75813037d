package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loxilb/kube/internal/annotation"
)

// TestKept checks that the last valid version of an invalid Service is served with current
// endpoints, also after a restart of the controller, and that a valid Service has none.
func TestKept(t *testing.T) {
	t.Parallel()
	s := service("web")
	s.Annotations["loxilb.io/timeout"] = "77"
	pods := slice(s, "10.1.0.1@n1")
	b := newBench(t, s, pods)
	b.wantStatus(s, "20.20.20.1", reasonProgrammed)
	b.change(s, func() {
		s.Annotations["loxilb.io/lbmode"], s.Annotations["loxilb.io/timeout"], s.Spec.Ports[0].Port = "sideways", "88", 81
	})
	b.wantAccepted(s, reasonInvalid, "lbmode")
	for _, pod := range []string{"10.1.0.2", "10.1.0.3"} {
		b.start(annotation.Settings{PodNetwork: true})
		b.change(pods, func() { pods.Endpoints[0].Addresses[0] = pod })
		b.want("current endpoints after a restart", "20.20.20.1:80="+pod+":8080")
		b.wantAccepted(s, reasonInvalid, "")
		if got := b.balancers[0].List()[0].ServiceArguments.InactiveTimeOut; got != 77 {
			t.Errorf("the idle timeout is %d, want 77", got)
		}
	}
	b.change(s, func() { delete(s.Annotations, "loxilb.io/lbmode") })
	b.want("corrected", "20.20.20.1:81=10.1.0.3:8080")
	b.wantAccepted(s, reasonAccepted, "")
	if meta.FindStatusCondition(s.Status.Conditions, conditionKept) != nil {
		t.Errorf("a valid Service has conditions %+v", s.Status.Conditions)
	}
	b.change(s, func() { s.Annotations["loxilb.io/lbmode"] = "sideways" })
	b.wantAccepted(s, reasonInvalid, "lbmode")
	b.change(s, func() { s.Spec.Type = corev1.ServiceTypeClusterIP })
	b.wantStatus(s, "", "")
	if len(s.Status.Conditions) > 0 {
		t.Errorf("a released Service has conditions %+v", s.Status.Conditions)
	}
}

// TestKeptIsOutdated checks that a valid Service is served in its present version although its
// status has a kept one: former versions of the controller do not remove it.
func TestKeptIsOutdated(t *testing.T) {
	t.Parallel()
	s := service("web")
	b := newBench(t, s, slice(s, "10.1.0.1@n1"))
	b.wantStatus(s, "20.20.20.1", reasonProgrammed)
	b.change(s, func() { s.Annotations = map[string]string{"loxilb.io/lbmode": "sideways"} })
	b.wantAccepted(s, reasonInvalid, "lbmode")
	meta.FindStatusCondition(s.Status.Conditions, conditionAccepted).Status = metav1.ConditionTrue
	if keptOf(s) != nil {
		t.Error("a valid Service has a kept version")
	}
}
