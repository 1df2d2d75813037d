package controller

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// conditionKept has the last valid version of an invalid Service. A restarted controller serves
// that version: otherwise its endpoints would not change until somebody corrects the Service. It is
// in the status, which users of Services may not write.
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

// setKept writes the last valid version of an invalid Service into its status, and removes it from
// the status of a valid one. If last is nil, this controller does not know that version, and the
// status keeps it.
func setKept(s *corev1.Service, isValid bool, last *accepted) {
	if isValid {
		meta.RemoveStatusCondition(&s.Status.Conditions, conditionKept)
		return
	}
	if last == nil {
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

// keptOf returns the last valid version of an invalid Service, or nil. A valid Service may have an
// outdated one: former versions of this controller do not remove it.
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

// restoreKept accepts the last valid version of an invalid Service after a restart. If the Service
// waits for an address, it still does so afterwards.
func (r *Services) restoreKept(ctx context.Context, s *corev1.Service) (*accepted, error) {
	last, key := keptOf(s), client.ObjectKeyFromObject(s)
	if last == nil {
		return nil, nil
	}
	r.mu.Lock()
	isWaiting := r.waiting[key]
	r.mu.Unlock()
	now, _, err := r.accept(ctx, last)
	if err != nil {
		return nil, err
	}
	if isWaiting {
		r.mu.Lock()
		r.waiting[key] = true
		r.mu.Unlock()
	}
	return r.recordAccepted(key, now), nil
}
