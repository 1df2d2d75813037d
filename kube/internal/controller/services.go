// Package controller watches Services and their dependencies, and configures balancers to serve
// them.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"loxilb/kube/internal/address"
	"loxilb/kube/internal/annotation"
	"loxilb/kube/internal/balancer"
	"loxilb/kube/internal/translate"
)

const (
	finalizer    = "service.kubernetes.io/load-balancer-cleanup"
	serviceIndex = "service" // of EndpointSlices: the name of their Service
	goneInterval = 200 * time.Millisecond
	pendingDelay = 2 * time.Second
	pendingAgain = 10 * time.Second // while a balancer is waited for, which may have gone silently
	askAgain     = time.Minute      // for an address that a node or a pod has
)

// Queue is the work queue of Services.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Services reconciles Services of type LoadBalancer.
type Services struct {
	Client      client.Client
	Reader      client.Reader // uncached, for pods
	Events      events.EventRecorder
	Fleet       *balancer.Fleet
	Addresses   *address.Allocator
	Annotations *annotation.Reader
	Defaults    annotation.Settings

	Class        string
	DefaultClass bool // Services without a class, too
	DenyHostMode bool // Services may not select mode hostonearm
	Uninstall    bool // give up all Services
	Zone, Owner  string
	IPMode       corev1.LoadBalancerIPMode
	LoadPools    func(context.Context) error // before addresses are given
	PoolsChanged func()                      // the use of pools has changed

	prepared sync.Mutex
	ready    bool

	mu       sync.Mutex
	queue    Queue
	nodes    []translate.Node
	fresh    bool        // nodes are up to date
	settling *time.Timer // until the next node may be an endpoint
	accepted map[types.NamespacedName]*accepted
	waiting  map[types.NamespacedName]bool   // for an address
	unknown  map[types.NamespacedName]string // the last warnings about annotations without effect
	starting map[types.NamespacedName]bool   // not reconciled yet since the start
	written  map[types.NamespacedName]*written
}

// accepted is the last valid request of a Service.
type accepted struct {
	since         time.Time // when the Service was valid for the first time
	uid           types.UID
	spec          corev1.ServiceSpec
	annotations   map[string]string // known ones
	settings      annotation.Settings
	vips, further []netip.Addr
}

// Reconcile has balancers serve a Service as it is now.
func (r *Services) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.prepare(ctx); err != nil {
		return reconcile.Result{}, err
	}
	if req.Name == "" { // the first one: there may be no Service
		return reconcile.Result{}, nil
	}
	result, err := r.reconcile(ctx, req.NamespacedName)
	r.done(req.NamespacedName) // whatever came of it: collection must not wait for one Service for good
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{RequeueAfter: goneInterval}, nil // its next event is on the way
	}
	if wait := contested(0); errors.As(err, &wait) {
		return reconcile.Result{RequeueAfter: time.Duration(wait)}, nil
	}
	return result, err
}

func (r *Services) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	var s corev1.Service
	if err := r.Client.Get(ctx, key, &s); apierrors.IsNotFound(err) {
		r.Fleet.Delete(key)
		r.release(key)
		return reconcile.Result{}, nil
	} else if err != nil {
		r.Fleet.Hold(key)
		return reconcile.Result{}, err
	}
	if !r.wants(&s) {
		return r.cleanUp(ctx, &s)
	}
	result, err := r.mark(ctx, &s)
	if err != nil {
		// Somebody may refuse all writes to this Service, such as a webhook. Balancers keep what
		// they have of it, and are freed of others that are deleted.
		r.Fleet.Hold(key)
	}
	return result, err
}

// mark gives a Service the finalizer, and then serves it.
func (r *Services) mark(ctx context.Context, s *corev1.Service) (reconcile.Result, error) {
	if key := client.ObjectKeyFromObject(s); r.isReplaced(s) {
		r.Fleet.Delete(key)
		if !r.Fleet.Gone(key) {
			return reconcile.Result{RequeueAfter: goneInterval}, nil
		}
		r.release(key)
	}
	if !controllerutil.ContainsFinalizer(s, finalizer) {
		before := s.DeepCopy()
		controllerutil.AddFinalizer(s, finalizer)
		if err := r.Client.Patch(ctx, s, since(before)); err != nil {
			return reconcile.Result{}, err
		}
	}
	return r.serve(ctx, s)
}

// isReplaced reports whether a Service was deleted and created again unnoticed, which is possible
// if its finalizer was removed. The former Service's request does not apply to the new one.
func (r *Services) isReplaced(s *corev1.Service) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.accepted[client.ObjectKeyFromObject(s)]
	return before != nil && before.uid != s.UID
}

// wants reports whether this controller serves a Service.
func (r *Services) wants(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.DeletionTimestamp == nil && !r.Uninstall && r.ofClass(s) && r.ofZone(s)
}

func (r *Services) ofZone(s *corev1.Service) bool {
	zone := s.Annotations[annotation.ZoneSelect]
	return zone == "" || zone == r.Zone
}

func (r *Services) ofClass(s *corev1.Service) bool {
	if s.Spec.LoadBalancerClass == nil {
		return r.DefaultClass
	}
	return *s.Spec.LoadBalancerClass == r.Class
}

// serve gives a Service its addresses, configures balancers, and reports. While a Service is
// invalid, its last valid configuration stays.
func (r *Services) serve(ctx context.Context, s *corev1.Service) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(s)
	now, found, err := r.accept(ctx, s)
	if err != nil {
		return reconcile.Result{}, err
	}
	if now = r.remember(key, now); now == nil {
		if now, err = r.restore(ctx, s); err != nil {
			return reconcile.Result{}, err
		}
	}
	r.warnUnknown(s)
	var result reconcile.Result
	if found.reason == address.ReasonInvalid {
		result.RequeueAfter = askAgain
	}
	if now == nil {
		r.Fleet.Hold(key)
		return result, r.report(ctx, s, found, nil, nil, nil)
	}
	desired, err := r.desired(ctx, s, now)
	if errors.Is(err, translate.ErrTooLarge) {
		r.Fleet.Hold(key)
		return result, r.report(ctx, s, finding{false, reasonTooLarge, err.Error()}, nil, nil, nil)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	r.Fleet.Set(key, desired)
	state := r.Fleet.State(key)
	verdict := programmed(&state, meta.FindStatusCondition(s.Status.Conditions, conditionProgrammed))
	if wait := pendingDelay - time.Since(now.since); verdict.reason == reasonPending && wait > 0 {
		// Most are no longer pending then, which saves a write. The event of the finalizer must not
		// cost it nevertheless.
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if verdict.reason == reasonPending {
		result.RequeueAfter = pendingAgain
	}
	return result, r.report(ctx, s, found, now, &verdict, r.ingress(now, r.toPublish(s, now, &state), &state))
}

// remember notes what a Service asks for; nil: it is not valid. It returns what was valid last.
func (r *Services) remember(key types.NamespacedName, now *accepted) *accepted {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.accepted[key]
	if now == nil {
		return before
	}
	if now.since = time.Now(); before != nil {
		now.since = before.since
	}
	r.accepted[key] = now
	return now
}

// accept checks a Service's request, and gives it its addresses. It returns nil if the request is
// invalid, or must wait for an address.
func (r *Services) accept(ctx context.Context, s *corev1.Service) (*accepted, finding, error) {
	key := client.ObjectKeyFromObject(s)
	settings, err := r.Annotations.Read(s.Annotations, s.Namespace, r.Defaults)
	if err != nil {
		return nil, finding{false, reasonInvalid, err.Error()}, nil
	}
	wanted, err := slots(s, &settings)
	if err := cmp.Or(err, checkSources(s), r.checkInstance(&settings), r.checkMode(&settings), checkProbe(s, &settings)); err != nil {
		return nil, finding{false, reasonInvalid, err.Error()}, nil
	}
	if _, err := r.allNodes(ctx); err != nil { // their addresses are reserved
		return nil, finding{}, err
	}
	request := r.request(s)
	request.Key, request.Slots = settings.SharingKey, wanted
	before, current := r.Addresses.Of(key.String()), published(s, r.Zone)
	no, err := r.checkAsked(ctx, wanted, slices.Concat(before, current))
	if err != nil {
		return nil, finding{}, err
	}
	var addresses []netip.Addr
	var notice *address.Error
	if no == nil {
		addresses, notice, err = r.Addresses.Allocate(request, current)
		errors.As(err, &no)
	}
	partial := notice != nil && notice.Reason != address.ReasonOutside && notice.Reason != address.ReasonShared
	r.mu.Lock()
	if no != nil || partial {
		r.waiting[key] = true
	} else {
		delete(r.waiting, key)
	}
	r.mu.Unlock()
	if no != nil {
		return nil, finding{false, no.Reason, no.Message}, nil
	}
	moved := !slices.Equal(before, addresses)
	if moved {
		r.PoolsChanged()
	}
	if len(before) > 0 && (moved || r.frees(key, request)) {
		r.wakeWaiting(key)
	}
	out := &accepted{uid: s.UID, spec: s.Spec, annotations: r.Annotations.Known(s.Annotations), settings: settings}
	out.vips, out.further = split(addresses, wanted)
	switch {
	case partial:
		return out, finding{true, reasonPartial, "without a second IP family: " + notice.Message}, nil
	case notice != nil:
		return out, finding{true, notice.Reason, notice.Message}, nil
	}
	return out, finding{true, reasonAccepted, "annotations are valid, and addresses are assigned"}, nil
}

// frees reports whether a Service gives up a port or a sharing key that others may wait for, or may
// share its address now.
func (r *Services) frees(key types.NamespacedName, now *address.Request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.accepted[key]
	return before != nil && (r.isExclusive(&before.spec) != now.Exclusive || before.settings.SharingKey != now.Key || !slices.Equal(ports(&before.spec), now.Ports))
}

func (r *Services) request(s *corev1.Service) *address.Request {
	return &address.Request{
		Service: s.Namespace + "/" + s.Name, Namespace: s.Namespace, Labels: s.Labels, Ports: ports(&s.Spec),
		Exclusive: r.isExclusive(&s.Spec),
	}
}

// isExclusive reports whether only nodes with pods of a Service announce its addresses.
func (r *Services) isExclusive(s *corev1.ServiceSpec) bool {
	return r.Defaults.BGP && s.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// desired translates a Service as it was accepted.
func (r *Services) desired(ctx context.Context, s *corev1.Service, a *accepted) (balancer.Desired, error) {
	var slices discoveryv1.EndpointSliceList
	err := r.Client.List(ctx, &slices, client.InNamespace(s.Namespace), client.MatchingFields{serviceIndex: s.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return balancer.Desired{}, err
	}
	nodes, err := r.allNodes(ctx)
	if err != nil {
		return balancer.Desired{}, err
	}
	as := &corev1.Service{ObjectMeta: s.ObjectMeta, Spec: a.spec}
	in := translate.Input{
		Service: as, Nodes: nodes, Now: time.Now(), Settings: a.settings, VIPs: a.vips, Secondary: a.further,
		Zone: r.Zone, Instances: r.Fleet.Roles.Instances, Owner: r.Owner, PerNode: translate.NeedsNodes(as, &a.settings),
	}
	for i := range slices.Items {
		in.Slices = append(in.Slices, &slices.Items[i])
	}
	if len(a.settings.Networks) > 0 {
		if in.PodAddresses, err = r.podAddresses(ctx, as, a.settings.Networks); err != nil {
			return balancer.Desired{}, err
		}
	}
	var out balancer.Desired
	if out.Common, err = in.Entries(""); err != nil || !in.PerNode {
		return out, err
	}
	out.Nodes, err = in.EntriesOf(r.Fleet.Nodes())
	return out, err
}

// toPublish returns the addresses for the status: addresses that a balancer serves, and addresses
// that are already published.
func (r *Services) toPublish(s *corev1.Service, a *accepted, state *balancer.State) (list []netip.Addr) {
	before := published(s, r.Zone)
	for i, vip := range a.vips {
		served := slices.Contains(before, vip) || state.Endpoints == 0 && state.Reachable > 0
		for _, p := range a.spec.Ports {
			served = served || state.Have[translate.KeyOf(vip, p.Port, p.Protocol)]
		}
		if !served {
			continue
		}
		list = append(list, vip)
		if i == 0 {
			defer func() { list = append(list, a.further...) }()
		}
	}
	return list
}

// cleanUp removes a Service that no longer belongs to this controller, if it did.
func (r *Services) cleanUp(ctx context.Context, s *corev1.Service) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(s)
	r.mu.Lock()
	_, was := r.accepted[key]
	r.mu.Unlock()
	r.Fleet.Delete(key)
	if !was && !r.marked(s) {
		return reconcile.Result{}, nil
	}
	r.done(key) // collection waits for all Services, so this one must not wait for it
	if !r.Fleet.Gone(key) {
		return reconcile.Result{RequeueAfter: goneInterval}, nil
	}
	if err := r.unmark(ctx, s); err != nil {
		return reconcile.Result{}, err
	}
	r.release(key)
	return reconcile.Result{}, nil
}

// unmark removes finalizer and status of a Service, unless another controller has taken it over.
// The conditions go last: a controller that dies in between finds the Service by them again.
func (r *Services) unmark(ctx context.Context, s *corev1.Service) error {
	others := s.Spec.Type == corev1.ServiceTypeLoadBalancer && !r.ofClass(s)
	changed := s.DeepCopy()
	if !others && controllerutil.ContainsFinalizer(s, finalizer) {
		controllerutil.RemoveFinalizer(changed, finalizer)
		if err := r.Client.Patch(ctx, changed, since(s)); err != nil {
			return err
		}
	}
	if s.DeletionTimestamp != nil {
		return nil
	}
	before := changed.DeepCopy()
	meta.RemoveStatusCondition(&changed.Status.Conditions, conditionAccepted)
	meta.RemoveStatusCondition(&changed.Status.Conditions, conditionProgrammed)
	meta.RemoveStatusCondition(&changed.Status.Conditions, conditionKept)
	if !others {
		changed.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
	return r.Client.Status().Patch(ctx, changed, since(before))
}

// release takes the addresses from a Service, and lets others have them.
func (r *Services) release(key types.NamespacedName) {
	r.mu.Lock()
	delete(r.accepted, key)
	delete(r.waiting, key)
	delete(r.unknown, key)
	delete(r.written, key)
	r.mu.Unlock()
	if r.Addresses.Release(key.String()) {
		r.PoolsChanged()
		r.wakeWaiting(key)
	}
}

// warnUnknown sends an event about annotations without effect when they change: one event for all,
// since there may be thousands.
func (r *Services) warnUnknown(s *corev1.Service) {
	key := client.ObjectKeyFromObject(s)
	text := unknownMessage(r.Annotations.Unknown(s.Annotations))
	r.mu.Lock()
	said, again := r.unknown[key]
	r.unknown[key] = text
	r.mu.Unlock()
	if c := meta.FindStatusCondition(s.Status.Conditions, conditionAccepted); !again && c != nil && c.ObservedGeneration == s.Generation {
		return // a controller before this one has said it
	}
	if text != "" && text != said {
		r.Events.Eventf(s, nil, corev1.EventTypeWarning, reasonUnknown, "Sync", "%s", text)
	}
}

func unknownMessage(names []string) string {
	const most = 3 // each may have 317 characters, and an event 1,024
	switch len(names) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("annotation %s is unknown and has no effect", names[0])
	}
	text := "annotations " + strings.Join(names[:min(len(names), most)], ", ")
	if len(names) > most {
		text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return text + " are unknown and have no effect"
}

// since returns a patch of the changes of a Service. The API refuses it if the Service has changed
// meanwhile: a request may arrive late, from a former leader, or about a Service that was created
// again.
func since(s *corev1.Service) client.Patch {
	return client.StrategicMergeFrom(s, client.MergeFromWithOptimisticLock{})
}
