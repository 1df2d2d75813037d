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
	finalizer       = "service.kubernetes.io/load-balancer-cleanup"
	serviceIndex    = "service"              // of EndpointSlices: the name of their Service
	goneInterval    = 200 * time.Millisecond // between checks whether balancers have deleted the services of a Service
	pendingDelay    = 2 * time.Second        // before a new Service gets the reason Pending
	pendingInterval = 10 * time.Second       // between checks while a balancer is awaited, which may have gone silently
	addressRetry    = time.Minute            // between requests for an address that a node or a pod has
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
	DefaultClass bool // also serve Services without a class
	DenyHostMode bool // refuse Services that select mode hostonearm
	Uninstall    bool // release all Services
	Zone, Owner  string
	IPMode       corev1.LoadBalancerIPMode
	LoadPools    func(context.Context) error // called before addresses are allocated
	PoolsChanged func()                      // called when the usage of pools has changed

	prepareMu  sync.Mutex
	isPrepared bool

	mu           sync.Mutex
	queue        Queue
	nodes        []translate.Node
	nodesFresh   bool        // nodes is up to date
	settleTimer  *time.Timer // runs NodesChanged when the next node is settled
	accepted     map[types.NamespacedName]*accepted
	waiting      map[types.NamespacedName]bool   // Services that wait for an address
	warned       map[types.NamespacedName]string // last warnings of warnUnknown
	unreconciled map[types.NamespacedName]bool   // Services that were not reconciled since the start
	written      map[types.NamespacedName]*writtenStatus
}

// accepted is the last valid version of a Service.
type accepted struct {
	since           time.Time // when a version was valid for the first time
	uid             types.UID
	spec            corev1.ServiceSpec
	annotations     map[string]string // those that are known
	settings        annotation.Settings
	vips, secondary []netip.Addr
}

// Reconcile configures balancers for the present version of a Service.
func (r *Services) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.prepare(ctx); err != nil {
		return reconcile.Result{}, err
	}
	if req.Name == "" { // the first request, which makes prepare run without any Service
		return reconcile.Result{}, nil
	}
	result, err := r.reconcile(ctx, req.NamespacedName)
	r.recordReconciled(req.NamespacedName) // also after an error: deletions must not wait for one Service forever
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{RequeueAfter: goneInterval}, nil // the next event is on its way
	}
	if wait := contestedError(0); errors.As(err, &wait) {
		return reconcile.Result{RequeueAfter: time.Duration(wait)}, nil
	}
	return result, err
}

// reconcile serves or releases a Service.
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
	if !r.isServed(&s) {
		return r.cleanUp(ctx, &s)
	}
	result, err := r.markAndServe(ctx, &s)
	if err != nil {
		// A webhook, for instance, may refuse all writes to this Service. Balancers keep its
		// services, and may delete those of others.
		r.Fleet.Hold(key)
	}
	return result, err
}

// markAndServe adds the finalizer to a Service, and serves it. It first deletes the services of a
// former Service of this name.
func (r *Services) markAndServe(ctx context.Context, s *corev1.Service) (reconcile.Result, error) {
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
		if err := r.Client.Patch(ctx, s, patchFrom(before)); err != nil {
			return reconcile.Result{}, err
		}
	}
	return r.serve(ctx, s)
}

// isReplaced reports whether a Service was deleted and created again unnoticed, which is possible
// if somebody removes the finalizer. The former version does not apply to the new Service.
func (r *Services) isReplaced(s *corev1.Service) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.accepted[client.ObjectKeyFromObject(s)]
	return before != nil && before.uid != s.UID
}

// isServed reports whether this controller serves a Service.
func (r *Services) isServed(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.DeletionTimestamp == nil && !r.Uninstall && r.isOfClass(s) && r.isOfZone(s)
}

func (r *Services) isOfZone(s *corev1.Service) bool {
	zone := s.Annotations[annotation.ZoneSelect]
	return zone == "" || zone == r.Zone
}

func (r *Services) isOfClass(s *corev1.Service) bool {
	if s.Spec.LoadBalancerClass == nil {
		return r.DefaultClass
	}
	return *s.Spec.LoadBalancerClass == r.Class
}

// serve allocates addresses for a Service, configures balancers, and writes the status. While the
// Service is invalid, it does so for the last valid version.
func (r *Services) serve(ctx context.Context, s *corev1.Service) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(s)
	now, found, err := r.accept(ctx, s)
	if err != nil {
		return reconcile.Result{}, err
	}
	if now = r.recordAccepted(key, now); now == nil {
		if now, err = r.restoreKept(ctx, s); err != nil {
			return reconcile.Result{}, err
		}
	}
	r.warnUnknown(s)
	var result reconcile.Result
	if found.reason == address.ReasonInvalid {
		result.RequeueAfter = addressRetry
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
		// Most Services are no longer pending then, which saves a write of the status.
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if verdict.reason == reasonPending {
		result.RequeueAfter = pendingInterval
	}
	return result, r.report(ctx, s, found, now, &verdict, r.ingress(now, r.toPublish(s, now, &state), &state))
}

// recordAccepted records a valid version of a Service, and returns the last valid version. now is
// nil if the present version is invalid.
func (r *Services) recordAccepted(key types.NamespacedName, now *accepted) *accepted {
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

// accept checks a Service, and allocates its addresses. It returns nil if the Service is invalid,
// or must wait for an address.
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
	if _, err := r.allNodes(ctx); err != nil { // reserves their addresses
		return nil, finding{}, err
	}
	request := r.request(s)
	request.Key, request.Slots = settings.SharingKey, wanted
	before, current := r.Addresses.Of(key.String()), published(s, r.Zone)
	no, err := r.checkRequested(ctx, wanted, slices.Concat(before, current))
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
	if len(before) > 0 && (moved || r.releasesShare(key, request)) {
		r.wakeWaiting(key)
	}
	out := &accepted{uid: s.UID, spec: s.Spec, annotations: r.Annotations.Known(s.Annotations), settings: settings}
	out.vips, out.secondary = split(addresses, wanted)
	switch {
	case partial:
		return out, finding{true, reasonPartial, "without a second IP family: " + notice.Message}, nil
	case notice != nil:
		return out, finding{true, notice.Reason, notice.Message}, nil
	}
	return out, finding{true, reasonAccepted, "annotations are valid, and addresses are assigned"}, nil
}

// releasesShare reports whether a Service releases a port, changes its sharing key or is no longer
// exclusive, so that others which wait may share its address.
func (r *Services) releasesShare(key types.NamespacedName, now *address.Request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.accepted[key]
	return before != nil && (r.isExclusive(&before.spec) != now.Exclusive || before.settings.SharingKey != now.Key || !slices.Equal(ports(&before.spec), now.Ports))
}

// request returns the allocator's request of a Service, without key and slots.
func (r *Services) request(s *corev1.Service) *address.Request {
	return &address.Request{
		Service: s.Namespace + "/" + s.Name, Namespace: s.Namespace, Labels: s.Labels, Ports: ports(&s.Spec),
		Exclusive: r.isExclusive(&s.Spec),
	}
}

// isExclusive reports whether only nodes with pods of a Service announce its addresses, by BGP.
func (r *Services) isExclusive(s *corev1.ServiceSpec) bool {
	return r.Defaults.BGP && s.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// desired returns the services of an accepted Service for balancers.
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
		Service: as, Nodes: nodes, Now: time.Now(), Settings: a.settings, VIPs: a.vips, Secondary: a.secondary,
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
	isPublic := func(vip netip.Addr) bool {
		return slices.Contains(before, vip) || state.Endpoints == 0 && state.Reachable > 0 ||
			slices.ContainsFunc(a.spec.Ports, func(p corev1.ServicePort) bool { return state.Have[translate.KeyOf(vip, p.Port, p.Protocol)] })
	}
	for _, vip := range a.vips {
		if isPublic(vip) {
			list = append(list, vip)
		}
	}
	if len(list) > 0 && list[0] == a.vips[0] { // secondary addresses belong to the services of the first VIP
		list = append(list, a.secondary...)
	}
	return list
}

// cleanUp releases a Service that this controller does not serve, if it did so before.
func (r *Services) cleanUp(ctx context.Context, s *corev1.Service) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(s)
	r.Fleet.Delete(key)
	if !r.isKnown(key) && !r.hasMarks(s) {
		return reconcile.Result{}, nil
	}
	r.recordReconciled(key) // before Gone: balancers may delete nothing until each Service was reconciled
	if !r.Fleet.Gone(key) {
		return reconcile.Result{RequeueAfter: goneInterval}, nil
	}
	if err := r.removeMarks(ctx, s); err != nil {
		return reconcile.Result{}, err
	}
	r.release(key)
	return reconcile.Result{}, nil
}

// isKnown reports whether this controller has served a Service, or tried to: an invalid Service may
// have addresses of before a restart, or wait for one.
func (r *Services) isKnown(key types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.accepted[key] != nil || r.waiting[key] || len(r.Addresses.Of(key.String())) > 0
}

// removeMarks removes finalizer and status of a Service, unless another controller has taken it
// over. It removes the conditions last: by them, the next controller finds the Service if this one
// dies.
func (r *Services) removeMarks(ctx context.Context, s *corev1.Service) error {
	isOfOthers := s.Spec.Type == corev1.ServiceTypeLoadBalancer && !r.isOfClass(s)
	changed := s.DeepCopy()
	if !isOfOthers && controllerutil.ContainsFinalizer(s, finalizer) {
		controllerutil.RemoveFinalizer(changed, finalizer)
		if err := r.Client.Patch(ctx, changed, patchFrom(s)); err != nil {
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
	if !isOfOthers {
		changed.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
	return r.Client.Status().Patch(ctx, changed, patchFrom(before))
}

// release forgets a Service and its addresses, and schedules Services that may wait for them.
func (r *Services) release(key types.NamespacedName) {
	r.mu.Lock()
	delete(r.accepted, key)
	delete(r.waiting, key)
	delete(r.warned, key)
	delete(r.written, key)
	r.mu.Unlock()
	if r.Addresses.Release(key.String()) {
		r.PoolsChanged()
		r.wakeWaiting(key)
	}
}

// warnUnknown sends an event about unknown annotations when they change: one for all, since there
// may be thousands.
func (r *Services) warnUnknown(s *corev1.Service) {
	key := client.ObjectKeyFromObject(s)
	text := unknownMessage(r.Annotations.Unknown(s.Annotations))
	r.mu.Lock()
	last, isRepeated := r.warned[key]
	r.warned[key] = text
	r.mu.Unlock()
	if c := meta.FindStatusCondition(s.Status.Conditions, conditionAccepted); !isRepeated && c != nil && c.ObservedGeneration == s.Generation {
		return // a former controller has sent it
	}
	if text != "" && text != last {
		r.Events.Eventf(s, nil, corev1.EventTypeWarning, reasonUnknown, "Sync", "%s", text)
	}
}

// unknownMessage returns a sentence about unknown annotations, or "".
func unknownMessage(names []string) string {
	const maxNames = 3 // each may have 317 characters, and an event 1,024
	switch len(names) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("annotation %s is unknown and has no effect", names[0])
	}
	text := "annotations " + strings.Join(names[:min(len(names), maxNames)], ", ")
	if len(names) > maxNames {
		text += fmt.Sprintf(" and %d more", len(names)-maxNames)
	}
	return text + " are unknown and have no effect"
}

// patchFrom returns a patch with the changes since a version of a Service. The apiserver refuses it
// if the Service has changed meanwhile: a request may be late, come from a former leader, or be
// about a Service that was created again.
func patchFrom(s *corev1.Service) client.Patch {
	return client.StrategicMergeFrom(s, client.MergeFromWithOptimisticLock{})
}
