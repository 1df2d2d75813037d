package controller

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// hasMarks reports whether a Service that is no longer served has marks of this controller: its
// condition, or only the finalizer if it had no condition yet. Conditions do not name a controller,
// so marks of a Service of another class or zone count as those of another controller: otherwise
// two controllers would undo each other's writes forever.
func (r *Services) hasMarks(s *corev1.Service) bool {
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && !(r.isOfClass(s) && r.isOfZone(s)) {
		return false
	}
	if meta.FindStatusCondition(s.Status.Conditions, conditionAccepted) != nil {
		return true
	}
	isReleased := s.DeletionTimestamp != nil || r.Uninstall
	return isReleased && r.isOfClass(s) && r.isOfZone(s) && controllerutil.ContainsFinalizer(s, finalizer)
}

// Remaining describes the marks of this controller in Services, and its services on balancers that
// answer; empty: there are none.
func (r *Services) Remaining(ctx context.Context) (string, error) {
	var list corev1.ServiceList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return "", err
	}
	var left []string
	for i := range list.Items {
		if s := &list.Items[i]; r.hasMarks(s) {
			left = append(left, "Service "+s.Namespace+"/"+s.Name)
		}
	}
	if n := r.Fleet.Remaining(); n > 0 {
		left = append(left, fmt.Sprintf("services on %d balancers", n))
	}
	return strings.Join(left, ", "), nil
}
