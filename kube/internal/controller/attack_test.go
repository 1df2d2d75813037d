package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"loxilb/kube/internal/annotation"
	"loxilb/test/await"
)

// TestReplaced removes the finalizer of a Service, deletes it and creates it again before the
// controller notices. Requests of the former Service do not apply to the new one.
func TestReplaced(t *testing.T) {
	t.Parallel()
	s := service("web")
	s.UID = "first"
	b := newBench(t, s, slice(s, "10.1.0.1@n1"))
	b.want("the former one", "20.20.20.1:80=10.1.0.1:8080")
	replace := func(edit func()) {
		b.change(s, func() { s.Finalizers = nil })
		if err := b.Delete(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		s = service("web")
		edit()
		if err := b.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	replace(func() { s.UID, s.Annotations["loxilb.io/lbmode"] = "second", "sideways" })
	b.want("one that is not valid", "")
	b.wantStatus(s, "", "")
	replace(func() { s.UID, s.Spec.Ports[0].Port = "third", 81 })
	b.want("a valid one", "20.20.20.1:81=10.1.0.1:8080")
}

// TestLateWrite checks that the apiserver refuses a late write of a status or finalizer, such as
// that of a former leader.
func TestLateWrite(t *testing.T) {
	t.Parallel()
	s := service("web")
	b := newBench(t, s, slice(s, "10.1.0.1@n1"))
	b.wantStatus(s, "20.20.20.1", reasonProgrammed)
	late := s.DeepCopy()
	b.change(s, func() { s.Labels = map[string]string{"changed": "meanwhile"} })
	for what, write := range map[string]func(context.Context) error{
		"status": func(ctx context.Context) error {
			return b.services.report(ctx, late, finding{reason: reasonInvalid}, nil, nil, nil)
		},
		"finalizer": func(ctx context.Context) error { return b.services.removeMarks(ctx, late) },
	} {
		if err := write(t.Context()); !apierrors.IsConflict(err) {
			t.Errorf("a late write of the %s: %v", what, err)
		}
	}
	before := s.ResourceVersion
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil || s.ResourceVersion != before {
		t.Errorf("the Service has version %s, before %s (%v)", s.ResourceVersion, before, err)
	}
}

// TestManyUnknownAnnotations checks that a valid and an invalid Service, with as many unknown
// annotations as fit, have one event each, and another one when annotations change.
func TestManyUnknownAnnotations(t *testing.T) {
	t.Parallel()
	const size = 256 << 10 // of all annotations, Kubernetes' limit
	s := service("web")
	for i := 0; i < size/len(annotation.Prefix+"unknown-00000"); i++ {
		s.Annotations[fmt.Sprintf("%sunknown-%05d", annotation.Prefix, i)] = ""
	}
	other := s.DeepCopy()
	other.Name, other.Annotations["loxilb.io/lbmode"] = "other", "sideways"
	b := newBench(t, s, other)
	sentEvents := func() (list []string) {
		for {
			select {
			case text := <-b.services.Events.(*events.FakeRecorder).Events:
				if strings.Contains(text, reasonUnknown) {
					list = append(list, text)
				}
			default:
				return list
			}
		}
	}
	for range 5 {
		b.reconcile()
	}
	list := sentEvents()
	if len(list) != 2 {
		t.Fatalf("there are %d events about two Services", len(list))
	}
	const want = "annotations loxilb.io/unknown-00000, loxilb.io/unknown-00001, loxilb.io/unknown-00002 and "
	if !strings.Contains(list[0], want) || len(list[0]) > maxMessage {
		t.Errorf("the event is %.1500q", list[0])
	}
	b.change(s, func() { s.Annotations = map[string]string{"loxilb.io/lbmod": "onearm"} })
	b.reconcile()
	if list := sentEvents(); len(list) != 1 || !strings.HasSuffix(list[0], "annotation loxilb.io/lbmod is unknown and has no effect") {
		t.Errorf("after a change, events are %.200q", list)
	}
	for i := range 4 {
		name := strings.Repeat("p", 253)
		if text := unknownMessage([]string{name + "/a", name + "/b", name + "/c", name + fmt.Sprint("/", i)}); len(text) > maxMessage {
			t.Errorf("a message has %d characters", len(text))
		}
	}
}

// TestSettling checks that nodes which have become ready at different times need only one timer.
func TestSettling(t *testing.T) {
	t.Parallel()
	s := service("web")
	objects := []client.Object{s}
	for i := range 20 {
		n := node(i + 1)
		n.Status.Conditions[0].LastTransitionTime.Time = time.Now().Add(-time.Duration(i) * time.Second / 4)
		objects = append(objects, n)
	}
	b := newBench(t, objects...)
	b.start(annotation.Settings{})
	b.reconcile()
	for range 10 {
		b.services.NodesChanged()
		last := b.services.settleTimer
		b.reconcile()
		if b.services.settleTimer == nil || last != nil && last.Stop() {
			t.Fatal("a former timer still runs")
		}
	}
}

// TestLargeService checks that a Service with a thousand ports and too many endpoints keeps its
// former endpoints, and has the reason TooLarge.
func TestLargeService(t *testing.T) {
	t.Parallel()
	s := service("web")
	s.Spec.Ports = nil
	const ports = 1000
	for i := range int32(ports) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: 1 + i, Protocol: corev1.ProtocolTCP})
	}
	pods := slice(s, "10.1.0.1@n1")
	pods.Ports = nil
	for i := range s.Spec.Ports {
		number, protocol := int32(8080), corev1.ProtocolTCP
		pods.Ports = append(pods.Ports, discoveryv1.EndpointPort{Name: &s.Spec.Ports[i].Name, Port: &number, Protocol: &protocol})
	}
	b := newBench(t, s, pods)
	has := func() (n int) { return len(b.balancers[0].List()) }
	await.NoError(t, patience, func() error {
		b.reconcile()
		if n := has(); n != ports {
			return fmt.Errorf("the balancer has %d services", n)
		}
		return nil
	})
	b.wantStatus(s, "20.20.20.1", reasonProgrammed)

	b.change(pods, func() {
		for i := range 1000 {
			pods.Endpoints = append(pods.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.2.%d.%d", i/250, 1+i%250)}})
		}
	})
	b.reconcile()
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
		t.Fatal(err)
	}
	if c := meta.FindStatusCondition(s.Status.Conditions, conditionAccepted); c == nil || c.Reason != reasonTooLarge {
		t.Errorf("condition of a Service that is too large: %+v", c)
	}
	if n := has(); n != ports || addressesOf(s) != "20.20.20.1" {
		t.Errorf("the balancer has %d services, and the status %q", n, addressesOf(s))
	}
	b.change(pods, func() { pods.Endpoints = pods.Endpoints[:2] })
	await.NoError(t, patience, func() error {
		b.reconcile()
		if n := len(b.balancers[0].List()[0].Endpoints); n != 2 {
			return fmt.Errorf("a service has %d endpoints, want 2", n)
		}
		return nil
	})
}

// TestLongAnnotations checks that messages quote only the beginning of long values, so they have
// room for the problem.
func TestLongAnnotations(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200<<10)
	for name, want := range map[string]string{
		"loxilb.io/lbmode": "is not one of", "loxilb.io/probereq": "is longer than 1024 bytes", "loxilb.io/staticIP": "which is not an IP address",
		"service.beta.kubernetes.io/load-balancer-source-ranges": "which is not a prefix",
	} {
		_, err := annotation.NewReader().Read(map[string]string{name: long}, "default", annotation.Settings{})
		if err == nil || len(err.Error()) > maxMessage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %.300v, want a short error with %q", name, err, want)
		}
	}
}
