package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestContest changes a status after each write, like a controller of another zone. The controller
// undoes such changes after growing pauses, but writes a new condition at once.
func TestContest(t *testing.T) {
	t.Parallel()
	s := service("web")
	pods := slice(s, "10.1.0.1@n1")
	b := newBench(t, s, pods)
	b.wantStatus(s, "20.20.20.1", reasonProgrammed)
	reason := func() string {
		if err := b.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
			t.Fatal(err)
		}
		return meta.FindStatusCondition(s.Status.Conditions, conditionProgrammed).Reason
	}
	undone, pause, began := 0, time.Duration(0), time.Now()
	for range 20 {
		meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: conditionProgrammed, Status: metav1.ConditionFalse, Reason: "Other"})
		if err := b.Status().Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		result, err := b.services.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)})
		if err != nil {
			t.Fatal(err)
		}
		pause = max(pause, result.RequeueAfter)
		if reason() == reasonProgrammed {
			undone++
		}
	}
	most := 1 // and one after each pause that is over
	for next, left := contestPause, time.Since(began); left > next; next *= 2 {
		most, left = most+1, left-next
	}
	if undone < 1 || undone > most || pause <= 0 || pause > contestLimit {
		t.Errorf("of 20 changes by somebody else, %d were undone, want %d at most; the longest pause is %v", undone, most, pause)
	}
	b.change(pods, func() { pods.Endpoints = nil })
	b.wantStatus(s, "20.20.20.1", reasonNoEndpoint)
	b.change(s, func() { s.Spec.Type = corev1.ServiceTypeClusterIP })
	b.wantStatus(s, "", "")
	if len(b.services.written) != 0 {
		t.Errorf("%d Services are remembered after the last one was released", len(b.services.written))
	}
}

// TestNoContest checks that the status follows many changes of a Service at once, although all
// conditions are the same: nobody else writes the status.
func TestNoContest(t *testing.T) {
	t.Parallel()
	s := service("web")
	b := newBench(t, s, slice(s, "10.1.0.1@n1"))
	b.wantStatus(s, "20.20.20.1", reasonProgrammed)
	for generation := range int64(5) {
		b.change(s, func() { s.Generation = generation + 1 })
		b.reconcile()
		if err := b.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
			t.Fatal(err)
		}
		if c := meta.FindStatusCondition(s.Status.Conditions, conditionProgrammed); c.ObservedGeneration != s.Generation {
			t.Errorf("the condition is of generation %d, want %d", c.ObservedGeneration, s.Generation)
		}
	}
}
