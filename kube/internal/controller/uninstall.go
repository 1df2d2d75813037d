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

// marked reports whether a Service that is no longer served still has traces of this controller.
// Before the first condition, the only trace is the finalizer. Conditions do not name a controller,
// so those of a Service of another class or zone count as traces of that class's or zone's
// controller: two controllers would undo each other's writes for ever.
func (r *Services) marked(s *corev1.Service) bool {
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && !(r.ofClass(s) && r.ofZone(s)) {
		return false
	}
	if meta.FindStatusCondition(s.Status.Conditions, conditionAccepted) != nil {
		return true
	}
	given := s.DeletionTimestamp != nil || r.Uninstall
	return given && r.ofClass(s) && r.ofZone(s) && controllerutil.ContainsFinalizer(s, finalizer)
}

// Left describes the traces of this controller in Services and balancers; empty if there are none.
// It does not wait for balancers that do not answer.
func (r *Services) Left(ctx context.Context) (string, error) {
	var list corev1.ServiceList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return "", err
	}
	var left []string
	for i := range list.Items {
		if s := &list.Items[i]; r.marked(s) {
			left = append(left, "Service "+s.Namespace+"/"+s.Name)
		}
	}
	if n := r.Fleet.Remaining(); n > 0 {
		left = append(left, fmt.Sprintf("services of %d balancers", n))
	}
	return strings.Join(left, ", "), nil
}
