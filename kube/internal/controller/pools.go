package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"loxilb/kube/api/v1alpha1"
	"loxilb/kube/internal/address"
)

// Conditions and reasons of pools.
const (
	conditionUsable = "Ready"     // the pool is used
	conditionFull   = "Exhausted" // one of its families has no free address
	reasonUsable    = "Usable"
	reasonConflict  = "Conflict"
	reasonRange     = "InvalidSpec"
	reasonFull      = "Full"
	reasonFree      = "AddressesFree"
)

// Pools sets the allocator's pools: those of the command line, of LoxiURLs and of AddressPools. It
// also writes the statuses of AddressPools.
type Pools struct {
	Client          client.Client
	Events          events.EventRecorder
	Addresses       *address.Allocator
	Static          []address.Pool
	HasAddressPools bool // the cluster has this custom resource
	HasLoxiURLs     bool
	LoxiURLs        func(context.Context) ([]loxiURL, error)
	Sharing         address.Sharing // of the pools of LoxiURLs
	Changed         func()          // called when pools have changed

	mu   sync.Mutex
	last []address.Pool
}

// Reconcile reads all pools, and writes the statuses of AddressPools. It ignores the request.
func (p *Pools) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	list, err := p.load(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	var failed error
	for i := range list { // a webhook that refuses one status must not keep others from changing
		if err := p.report(ctx, &list[i]); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			failed = errors.Join(failed, err)
		}
	}
	return reconcile.Result{}, failed
}

// Load sets the allocator's pools.
func (p *Pools) Load(ctx context.Context) error {
	_, err := p.load(ctx)
	return err
}

// checkedPool is an AddressPool, and why it is not used.
type checkedPool struct {
	object          v1alpha1.AddressPool
	reason, problem string
}

// load sets the allocator's pools, and returns all AddressPools.
func (p *Pools) load(ctx context.Context) ([]checkedPool, error) {
	pools := slices.Clone(p.Static)
	urls, err := p.LoxiURLs(ctx)
	if err != nil {
		return nil, err
	}
	// Of two pools that overlap, always use the same one: the cache has no order.
	slices.SortFunc(urls, func(a, b loxiURL) int { return strings.Compare(a.name, b.name) })
	for _, u := range urls {
		if u.kind == kindCIDRPool {
			more, err := address.ParsePools(u.text, p.Sharing)
			if err != nil {
				more = []address.Pool{{Problem: fmt.Sprintf("LoxiURL %s: %v", u.name, err)}}
			}
			pools = append(pools, more...)
		}
	}
	for i := range pools {
		pools[i].Problem = cmp.Or(pools[i].Problem, pools[i].Overlap(pools[:i]))
	}
	unreported := len(pools) // LoxiURLs have no status
	var list v1alpha1.AddressPoolList
	if p.HasAddressPools {
		if err := p.Client.List(ctx, &list); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.AddressPool) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	out := make([]checkedPool, 0, len(list.Items))
	for i := range list.Items {
		one := checkedPool{object: list.Items[i]}
		pool, err := poolOf(&list.Items[i])
		switch {
		case err != nil:
			one.reason, one.problem = reasonRange, err.Error()
			pool.Problem = one.problem
		case slices.ContainsFunc(pools, func(q address.Pool) bool { return q.Name == pool.Name }):
			one.reason, one.problem = reasonConflict, "the command line or a LoxiURL has a pool of this name"
			pool.Name, pool.Problem = "", one.problem
		default:
			if one.problem = pool.Overlap(pools); one.problem != "" {
				one.reason, pool.Problem = reasonConflict, one.problem
			}
		}
		pools = append(pools, pool)
		out = append(out, one)
	}
	p.Addresses.SetPools(pools)
	p.mu.Lock()
	same := apiequality.Semantic.DeepEqual(summary(p.last), summary(pools))
	p.last = pools
	p.mu.Unlock()
	if !same {
		for _, pool := range pools[:unreported] {
			if pool.Problem != "" {
				ctrl.LoggerFrom(ctx).Info("pool is not used", "pool", pool.Name, "reason", pool.Problem)
			}
		}
		p.Changed()
	}
	return out, nil
}

// summary returns everything that determines new addresses, as text.
func summary(pools []address.Pool) (lines []string) {
	for _, p := range pools {
		lines = append(lines, fmt.Sprint(p.Name, p.Ranges, p.Auto, p.Sharing, p.Priority, p.Selector, p.Namespaces, p.Problem))
	}
	return lines
}

// poolOf converts an AddressPool. After an error, the pool has no ranges or not all of them.
func poolOf(object *v1alpha1.AddressPool) (address.Pool, error) {
	spec := &object.Spec
	pool := address.Pool{
		Name: object.Name, Auto: spec.AutoAssign == nil || *spec.AutoAssign, Sharing: address.Sharing(spec.Sharing),
		Priority: spec.Priority, Namespaces: spec.Namespaces,
	}
	switch pool.Sharing {
	case "":
		pool.Sharing = address.ShareByKey
	case address.ShareNever, address.ShareByKey, address.ShareAlways:
	default:
		return pool, fmt.Errorf("spec.sharing %q is not one of Never, Key or Always", spec.Sharing)
	}
	if spec.ServiceSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(spec.ServiceSelector)
		if err != nil {
			return pool, fmt.Errorf("spec.serviceSelector: %w", err)
		}
		pool.Selector = selector
	}
	for i, text := range spec.Addresses {
		r, err := address.ParseRange(text)
		if err != nil {
			return pool, fmt.Errorf("spec.addresses[%d]: %w", i, err)
		}
		pool.Ranges = append(pool.Ranges, r)
	}
	if len(pool.Ranges) == 0 {
		return pool, fmt.Errorf("spec.addresses is empty")
	}
	return pool, nil
}

// report writes the status of a pool, and sends an event when it becomes unusable or full.
func (p *Pools) report(ctx context.Context, pool *checkedPool) error {
	object := &pool.object
	changed := object.DeepCopyObject().(*v1alpha1.AddressPool)
	used := p.Addresses.Usage(object.Name)
	changed.Status.IPv4, changed.Status.IPv6, changed.Status.Services = usage(used.IPv4), usage(used.IPv6), used.Services
	usable := metav1.Condition{Type: conditionUsable, Status: metav1.ConditionTrue, Reason: reasonUsable, ObservedGeneration: object.Generation}
	full := metav1.Condition{Type: conditionFull, Status: metav1.ConditionFalse, Reason: reasonFree, ObservedGeneration: object.Generation}
	if pool.problem != "" {
		usable.Status, usable.Reason, usable.Message = metav1.ConditionFalse, pool.reason, pool.problem
		changed.Status.IPv4, changed.Status.IPv6, changed.Status.Services = nil, nil, 0
	}
	for _, u := range []*v1alpha1.Usage{changed.Status.IPv4, changed.Status.IPv6} {
		if u != nil && u.Free == 0 {
			full.Status, full.Reason, full.Message = metav1.ConditionTrue, reasonFull, "all addresses of a family are in use"
		}
	}
	meta.SetStatusCondition(&changed.Status.Conditions, usable)
	meta.SetStatusCondition(&changed.Status.Conditions, full)
	if apiequality.Semantic.DeepEqual(object.Status, changed.Status) {
		return nil
	}
	if err := p.Client.Status().Patch(ctx, changed, client.MergeFrom(object)); err != nil {
		return err
	}
	for kind, bad := range map[string]metav1.ConditionStatus{conditionUsable: metav1.ConditionFalse, conditionFull: metav1.ConditionTrue} {
		old, now := meta.FindStatusCondition(object.Status.Conditions, kind), meta.FindStatusCondition(changed.Status.Conditions, kind)
		if now.Status == bad && (old == nil || old.Status != bad || old.Message != now.Message) {
			p.Events.Eventf(changed, nil, corev1.EventTypeWarning, now.Reason, "Sync", "%s", now.Message)
		}
	}
	return nil
}

// usage converts the usage of one family; nil: the pool has no addresses of it.
func usage(u address.Usage) *v1alpha1.Usage {
	if u.Total == 0 {
		return nil
	}
	return &v1alpha1.Usage{Total: u.Total, Used: u.Used, Free: u.Free()}
}
