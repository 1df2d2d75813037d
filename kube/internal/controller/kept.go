package controller

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// conditionKept has the last valid version of a Service that is not valid. A restarted controller
// goes on with it: otherwise endpoints would stay as they were until somebody corrects the Service.
// It is in the status, which users of Services may not write.
const (
	conditionKept = "loxilb.io/Kept"
	reasonKept    = "LastValid"
	maxKept       = 32 << 10 // Kubernetes' limit of a condition's message
)

// keptVersion is the message of the condition.
type keptVersion struct {
	Annotations map[string]string  `json:"annotations,omitempty"`
	Spec        corev1.ServiceSpec `json:"spec"`
}

// setKept writes the last valid version of a Service that is not valid into its status. nil: this
// controller does not know it, so what the status has stays.
func setKept(s *corev1.Service, isValid bool, last *accepted) {
	if isValid {
		meta.RemoveStatusCondition(&s.Status.Conditions, conditionKept)
	}
	if isValid || last == nil {
		return
	}
	text, err := json.Marshal(keptVersion{last.annotations, last.spec})
	if err != nil || len(text) > maxKept {
		return
	}
	meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{
		Type: conditionKept, Status: metav1.ConditionTrue, Reason: reasonKept, Message: string(text),
	})
}

// keptOf returns a Service as it was valid last, or nil. In the status of a valid Service it is
// outdated: former versions of this controller do not remove it.
func keptOf(s *corev1.Service) *corev1.Service {
	c := meta.FindStatusCondition(s.Status.Conditions, conditionKept)
	if c == nil || !meta.IsStatusConditionFalse(s.Status.Conditions, conditionAccepted) {
		return nil
	}
	var last keptVersion
	if json.Unmarshal([]byte(c.Message), &last) != nil {
		return nil
	}
	out := s.DeepCopy()
	out.Annotations, out.Spec = last.Annotations, last.Spec
	return out
}

// restore accepts the last valid version of a Service that is not valid, after a restart. The
// Service goes on waiting for an address if it does.
func (r *Services) restore(ctx context.Context, s *corev1.Service) (*accepted, error) {
	last, key := keptOf(s), client.ObjectKeyFromObject(s)
	if last == nil {
		return nil, nil
	}
	r.mu.Lock()
	waits := r.waiting[key]
	r.mu.Unlock()
	now, _, err := r.accept(ctx, last)
	if err != nil {
		return nil, err
	}
	if waits {
		r.mu.Lock()
		r.waiting[key] = true
		r.mu.Unlock()
	}
	return r.remember(key, now), nil
}
