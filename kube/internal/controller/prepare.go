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

// prepare restores the addresses of all Services before new ones are allocated. In case two have
// the same address and port, those come first whose status has their ports, then older ones, and
// last those that were refused: a restart must not give a Service the port of another one.
func (r *Services) prepare(ctx context.Context) error {
	r.prepared.Lock()
	defer r.prepared.Unlock()
	if r.ready {
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
		if s := &list.Items[i]; r.wants(s) {
			order = append(order, s)
		}
	}
	slices.SortFunc(order, func(a, b *corev1.Service) int {
		return cmp.Or(rank(a)-rank(b), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	r.mu.Lock()
	r.accepted, r.waiting = map[types.NamespacedName]*accepted{}, map[types.NamespacedName]bool{}
	r.starting, r.unknown = map[types.NamespacedName]bool{}, map[types.NamespacedName]string{}
	for _, s := range order {
		r.starting[client.ObjectKeyFromObject(s)] = true
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
	r.ready = true
	if empty {
		r.Fleet.Complete()
	}
	return nil
}

// rank returns a lower number for a Service whose ports are better known to be its own.
func rank(s *corev1.Service) int {
	switch {
	case keptOf(s) != nil || len(publishedPorts(s)) > 0:
		return 0
	case meta.IsStatusConditionFalse(s.Status.Conditions, conditionAccepted):
		return 2
	}
	return 1
}

// done records that a Service was reconciled. After all Services, superfluous services are removed
// from balancers.
func (r *Services) done(key types.NamespacedName) {
	r.mu.Lock()
	_, was := r.starting[key]
	delete(r.starting, key)
	last := was && len(r.starting) == 0
	r.mu.Unlock()
	if last {
		r.Fleet.Complete()
	}
}

// SetQueue is called with the queue when it is there.
func (r *Services) SetQueue(q Queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = q
}

// Enqueue has a Service reconciled.
func (r *Services) Enqueue(key types.NamespacedName) {
	r.mu.Lock()
	q := r.queue
	r.mu.Unlock()
	if q != nil {
		q.Add(reconcile.Request{NamespacedName: key})
	}
}

// EnqueueAll has all Services reconciled that balancers serve.
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

// BalancersChanged reconciles all Services: nodes with balancers may have their own endpoints, and
// addresses of balancers are reserved, for which some may wait.
func (r *Services) BalancersChanged() {
	r.mu.Lock()
	r.fresh = false
	r.mu.Unlock()
	r.PoolsReplaced()
}

// PoolsReplaced reconciles all Services: waiting ones may get addresses, and others may now be
// outside of their pools.
func (r *Services) PoolsReplaced() {
	r.wakeWaiting(types.NamespacedName{})
	r.EnqueueAll()
}

func (r *Services) wakeWaiting(but types.NamespacedName) {
	r.mu.Lock()
	var keys []types.NamespacedName
	for key := range r.waiting {
		if key != but {
			keys = append(keys, key)
		}
	}
	r.mu.Unlock()
	for _, key := range keys {
		r.Enqueue(key)
	}
}

// NodesChanged has Services reconciled whose endpoints are nodes, or are preferred by zones of
// nodes, and those that may wait for a node's address.
func (r *Services) NodesChanged() {
	r.mu.Lock()
	r.fresh = false
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
