package controller

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// prepare restores the addresses of all Services before new ones are allocated. If two Services
// have the same address and port, the first in the order of rank and age gets it: a restart must
// not give a Service the port of another one.
func (r *Services) prepare(ctx context.Context) error {
	r.prepareMu.Lock()
	defer r.prepareMu.Unlock()
	if r.isPrepared {
		return nil
	}
	if err := r.LoadPools(ctx); err != nil {
		return err
	}
	var list corev1.ServiceList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	order := make([]*corev1.Service, 0, len(list.Items))
	for i := range list.Items {
		if s := &list.Items[i]; r.isServed(s) {
			order = append(order, s)
		}
	}
	slices.SortFunc(order, func(a, b *corev1.Service) int {
		return cmp.Or(rank(a)-rank(b), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	r.mu.Lock()
	r.accepted, r.waiting = map[types.NamespacedName]*accepted{}, map[types.NamespacedName]bool{}
	r.unreconciled, r.warned = map[types.NamespacedName]bool{}, map[types.NamespacedName]string{}
	for _, s := range order {
		r.unreconciled[client.ObjectKeyFromObject(s)] = true
	}
	empty := len(order) == 0
	r.mu.Unlock()
	for _, s := range order {
		as := cmp.Or(keptOf(s), s)
		request := r.request(as)
		if list := publishedPorts(s); len(list) > 0 {
			request.Ports = list
		}
		if settings, err := r.Annotations.Read(as.Annotations, s.Namespace, r.Defaults); err == nil {
			request.Key = settings.SharingKey
		}
		r.Addresses.Adopt(request, published(s, r.Zone))
	}
	r.isPrepared = true
	if empty {
		r.Fleet.Complete()
	}
	return nil
}

// rank returns how certain it is that a Service had its ports before the restart: 0 if its status
// lists them, 2 if it was refused, otherwise 1.
func rank(s *corev1.Service) int {
	switch {
	case keptOf(s) != nil || len(publishedPorts(s)) > 0:
		return 0
	case meta.IsStatusConditionFalse(s.Status.Conditions, conditionAccepted):
		return 2
	}
	return 1
}

// recordReconciled records that a Service was reconciled. After the last one, balancers may delete
// services without a Service.
func (r *Services) recordReconciled(key types.NamespacedName) {
	r.mu.Lock()
	_, isFirst := r.unreconciled[key]
	delete(r.unreconciled, key)
	last := isFirst && len(r.unreconciled) == 0
	r.mu.Unlock()
	if last {
		r.Fleet.Complete()
	}
}

// SetQueue sets the queue of Enqueue once the controller has one.
func (r *Services) SetQueue(q Queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = q
}

// Enqueue schedules a Service to be reconciled.
func (r *Services) Enqueue(key types.NamespacedName) {
	r.mu.Lock()
	q := r.queue
	r.mu.Unlock()
	if q != nil {
		q.Add(reconcile.Request{NamespacedName: key})
	}
}

// EnqueueAll schedules all accepted Services.
func (r *Services) EnqueueAll() {
	r.mu.Lock()
	keys := make([]types.NamespacedName, 0, len(r.accepted))
	for key := range r.accepted {
		keys = append(keys, key)
	}
	r.mu.Unlock()
	for _, key := range keys {
		r.Enqueue(key)
	}
}

// BalancersChanged schedules all Services after balancers were added or removed: balancers may need
// their own endpoints, and Services may wait for a balancer's address, which is reserved.
func (r *Services) BalancersChanged() {
	r.mu.Lock()
	r.nodesFresh = false
	r.mu.Unlock()
	r.PoolsReplaced()
}

// PoolsReplaced schedules all Services: waiting Services may get addresses, and addresses of others
// may be outside of their pools.
func (r *Services) PoolsReplaced() {
	r.wakeWaiting(types.NamespacedName{})
	r.EnqueueAll()
}

// wakeWaiting schedules the Services that wait for an address, except one.
func (r *Services) wakeWaiting(except types.NamespacedName) {
	r.mu.Lock()
	var keys []types.NamespacedName
	for key := range r.waiting {
		if key != except {
			keys = append(keys, key)
		}
	}
	r.mu.Unlock()
	for _, key := range keys {
		r.Enqueue(key)
	}
}

// NodesChanged schedules Services whose endpoints are nodes or depend on the zones of nodes, and
// those that may wait for a node's address.
func (r *Services) NodesChanged() {
	r.mu.Lock()
	r.nodesFresh = false
	var keys []types.NamespacedName
	for key, a := range r.accepted {
		if !a.settings.PodNetwork && !a.settings.External || a.spec.TrafficDistribution != nil {
			keys = append(keys, key)
		}
	}
	r.mu.Unlock()
	for _, key := range keys {
		r.Enqueue(key)
	}
	r.wakeWaiting(types.NamespacedName{})
}
