package controller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loxilb/kube/internal/balancer"
)

// TestProgrammed checks the condition of a Service while no balancer answers: the replacement of a
// daemon does not change it, but a longer silence does.
func TestProgrammed(t *testing.T) {
	t.Parallel()
	served := &metav1.Condition{Status: metav1.ConditionTrue, Reason: reasonProgrammed}
	failed := &metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonPending}
	away := balancer.State{BalancersKnown: true, Tried: true, Balancers: 2, Entries: 1, Endpoints: 1}
	for what, tc := range map[string]struct {
		was         *metav1.Condition
		silent, had bool
		status      bool
		reason      string
	}{
		"served, away for a moment":         {served, false, true, true, reasonProgrammed},
		"changed, away for a moment":        {served, false, false, true, reasonProgrammed},
		"served, away for long":             {served, true, false, false, reasonNoBalancer},
		"never served, away for a moment":   {nil, false, false, false, reasonNoBalancer},
		"waiting before, away for a moment": {failed, false, false, false, reasonNoBalancer},
	} {
		state := away
		state.Silent, state.Programmed = tc.silent, tc.had
		if got := programmed(&state, tc.was); got.ok != tc.status || got.reason != tc.reason {
			t.Errorf("%s: %+v, want %v and %s", what, got, tc.status, tc.reason)
		}
	}
}
