package controller

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"loxilb/kube/api/v1alpha1"
	"loxilb/kube/internal/translate"
)

const (
	workers   = 16              // Services reconciled at a time: they mostly wait for the apiserver
	poolDelay = time.Second / 2 // delay of pools' statuses, so several changes are one write

	// Failures are retried after a pause that doubles up to maxRetry. controller-runtime's maximum
	// is 1,000 s: after ten minutes in which a webhook refuses writes, a Service would wait for up
	// to ten minutes more.
	minRetry = 5 * time.Millisecond
	maxRetry = 15 * time.Second
)

// options returns the options of a controller with a number of workers.
func options(workers int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minRetry, maxRetry),
	}
}

// SetUp registers the controllers with a manager.
func SetUp(ctx context.Context, mgr ctrl.Manager, services *Services, pools *Pools, targets *Targets) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &discoveryv1.EndpointSlice{}, serviceIndex, func(o client.Object) []string {
		return []string{o.GetLabels()[discoveryv1.LabelServiceName]}
	})
	if err != nil {
		return err
	}
	if err := mgr.Add(services.Fleet); err != nil {
		return err
	}
	if err := setUpPools(mgr, services, pools); err != nil {
		return err
	}
	if err := setUpTargets(mgr, services, targets); err != nil {
		return err
	}
	return setUpServices(mgr, services)
}

func setUpServices(mgr ctrl.Manager, services *Services) error {
	queue := source.Func(func(_ context.Context, q Queue) error {
		services.SetQueue(q)
		q.Add(reconcile.Request{})
		return nil
	})
	nodes := handler.Funcs{
		CreateFunc: func(context.Context, event.CreateEvent, Queue) { services.NodesChanged() },
		DeleteFunc: func(context.Context, event.DeleteEvent, Queue) { services.NodesChanged() },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ Queue) {
			before, after := translate.NodeOf(e.ObjectOld.(*corev1.Node)), translate.NodeOf(e.ObjectNew.(*corev1.Node))
			if !before.Equal(after) {
				services.NodesChanged()
			}
		},
	}
	return ctrl.NewControllerManagedBy(mgr).Named("services").
		For(&corev1.Service{}, builder.WithPredicates(predicate.NewPredicateFuncs(services.concerns))).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(services.ofSlice)).
		Watches(&corev1.Node{}, nodes).
		WatchesRawSource(queue).
		WithOptions(options(workers)).
		Complete(services)
}

// concerns reports whether this controller may serve a Service, or may have done so.
func (r *Services) concerns(o client.Object) bool {
	s, ok := o.(*corev1.Service)
	if !ok {
		return false
	}
	r.mu.Lock()
	_, known := r.accepted[client.ObjectKeyFromObject(s)]
	r.mu.Unlock()
	return known || s.Spec.Type == corev1.ServiceTypeLoadBalancer || len(s.Status.Conditions) > 0
}

// ofSlice returns the Service of an EndpointSlice if this controller serves it.
func (r *Services) ofSlice(_ context.Context, o client.Object) []reconcile.Request {
	key := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetLabels()[discoveryv1.LabelServiceName]}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.accepted[key] == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

func setUpPools(mgr ctrl.Manager, services *Services, pools *Pools) error {
	var queue atomic.Pointer[Queue]
	services.PoolsChanged = func() {
		if q := queue.Load(); q != nil {
			(*q).AddAfter(reconcile.Request{}, poolDelay)
		}
	}
	b := ctrl.NewControllerManagedBy(mgr).Named("pools").WithOptions(options(1)).
		WatchesRawSource(source.Func(func(_ context.Context, q Queue) error {
			queue.Store(&q)
			q.Add(reconcile.Request{})
			return nil
		}))
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	if pools.HasAddressPools {
		b = b.Watches(&v1alpha1.AddressPool{}, one)
	}
	return watchLoxiURLs(b, one, pools.HasLoxiURLs).Complete(pools)
}

// watchLoxiURLs adds a watch of LoxiURLs if the cluster has them.
func watchLoxiURLs(b *builder.Builder, h handler.EventHandler, exists bool) *builder.Builder {
	if !exists {
		return b
	}
	var u unstructured.Unstructured
	u.SetGroupVersionKind(LoxiURLKind())
	return b.Watches(&u, h)
}

func setUpTargets(mgr ctrl.Manager, services *Services, targets *Targets) error {
	one := func() []reconcile.Request { return []reconcile.Request{{}} }
	b := ctrl.NewControllerManagedBy(mgr).Named("balancers").WithOptions(options(1)).
		WatchesRawSource(source.Func(func(_ context.Context, q Queue) error {
			q.Add(reconcile.Request{})
			return nil
		})).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			if o.GetNamespace() != targets.Discovery.Namespace || o.GetLabels()[discoveryv1.LabelServiceName] != targets.Discovery.Name {
				return nil
			}
			return one()
		}))
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return one() })
	targets.Changed = services.BalancersChanged
	return watchLoxiURLs(b, all, targets.HasLoxiURLs).Complete(targets)
}
