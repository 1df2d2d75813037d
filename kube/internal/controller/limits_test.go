package controller

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"loxilb/kube/internal/annotation"
	"loxilb/kube/internal/translate"
	"loxilb/test/await"
)

// TestManyEndpoints checks that a Service with more pods than a balancer's limit is served by as
// many as possible, also after changes, with a condition and an event.
func TestManyEndpoints(t *testing.T) {
	t.Parallel()
	s := service("web")
	pods := slice(s)
	for i := range translate.MaxEndpoints + 2 {
		one := slice(s, fmt.Sprintf("10.1.%d.%d@n1", i/250, 1+i%250))
		pods.Endpoints = append(pods.Endpoints, one.Endpoints...)
	}
	b := newBench(t, s, pods)
	b.wantStatus(s, "20.20.20.1", reasonTooMany)
	b.wantEvent(reasonTooMany, "4096")
	before := s.ResourceVersion
	b.change(pods, func() { pods.Endpoints = pods.Endpoints[1:] })
	await.NoError(t, patience, func() error {
		b.reconcile()
		if got := servicesOf(b.balancers[0]); strings.Contains(got, "=10.1.0.1:") || strings.Count(got, ":8080") != translate.MaxEndpoints {
			return fmt.Errorf("the balancer has %d endpoints, the first of them %.40s", strings.Count(got, ":8080"), got)
		}
		return nil
	})
	if b.wantStatus(s, "20.20.20.1", reasonTooMany); s.ResourceVersion != before {
		t.Error("the change of a pod has written the status")
	}
	b.start(annotation.Settings{PodNetwork: true, BGP: true})
	b.change(s, func() { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
	elsewhere := "n2"
	b.change(pods, func() { pods.Endpoints[0].NodeName = &elsewhere })
	b.wantStatus(s, "20.20.20.1", reasonProgrammed) // each node has its own pods
	b.start(annotation.Settings{PodNetwork: true})
	b.wantStatus(s, "20.20.20.1", reasonTooMany)
	b.change(pods, func() { pods.Endpoints = pods.Endpoints[2:] })
	b.wantStatus(s, "20.20.20.1", reasonProgrammed)
}

// TestStuckEvent checks that an event of a Service names the balancer that does not delete it, in a
// valid length.
func TestStuckEvent(t *testing.T) {
	t.Parallel()
	s := service("web")
	b := newBench(t, s)
	for _, key := range []client.ObjectKey{{Namespace: "default", Name: "gone"}, client.ObjectKeyFromObject(s)} {
		b.services.ReportStuck(t.Context(), key, "balancer b keeps "+key.Name)
	}
	b.wantEvent(reasonStuck, "balancer b keeps web")
	b.services.ReportStuck(t.Context(), client.ObjectKeyFromObject(s), "balancer b keeps "+strings.Repeat("é", maxMessage))
	e := <-b.services.Events.(*events.FakeRecorder).Events
	if _, text, _ := strings.Cut(e, "balancer"); len(text)+len("balancer") > maxMessage || !utf8.ValidString(text) {
		t.Errorf("an event has %d bytes, which the API refuses: %.40q", len(e), e)
	}
}

// wantEvent checks that the first event with a reason has a text.
func (b *bench) wantEvent(reason, text string) {
	b.t.Helper()
	for recorder := b.services.Events.(*events.FakeRecorder); len(recorder.Events) > 0; {
		if e := <-recorder.Events; strings.Contains(e, reason) {
			if !strings.Contains(e, text) {
				b.t.Errorf("the event is %q, want %q", e, text)
			}
			return
		}
	}
	b.t.Errorf("there is no event %s", reason)
}
