package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"loxilb/kube/internal/address"
	"loxilb/kube/internal/balancer"
	"loxilb/kube/internal/translate"
)

// Conditions of a Service.
const (
	conditionAccepted   = "loxilb.io/Accepted"   // its annotations are valid, and it has its addresses
	conditionProgrammed = "loxilb.io/Programmed" // each of its services is on a balancer
	portRefused         = "loxilb.io/Refused"    // for ports[].error of a status
	maxMessage          = 1024
)

// Reasons of conditions and events.
const (
	reasonAccepted   = "Accepted"
	reasonInvalid    = "InvalidAnnotation"
	reasonUnknown    = "UnknownAnnotation"
	reasonTooLarge   = "TooLarge"
	reasonPartial    = "AddressMissing"
	reasonProgrammed = "Programmed"
	reasonRefused    = "Refused"
	reasonPending    = "Pending"
	reasonNoBalancer = "NoBalancer"
	reasonNoEndpoint = "NoEndpoints"
	reasonTooMany    = "TooManyEndpoints"
	reasonStuck      = "NotDeleted"
	reasonEndpoint   = "InvalidEndpoint"
)

// finding is the status, reason and message of a condition.
type finding struct {
	ok              bool
	reason, message string
}

// report writes the status of a Service, and sends events about changes. now is the version that
// balancers have, or nil. Without programmed or ingress, the status keeps its own.
func (r *Services) report(ctx context.Context, s *corev1.Service, valid finding, now *accepted, programmed *finding, ingress []corev1.LoadBalancerIngress) error {
	changed := s.DeepCopy()
	r.setCondition(changed, conditionAccepted, valid)
	setKept(changed, valid.ok, now)
	if programmed != nil {
		r.setCondition(changed, conditionProgrammed, *programmed)
	}
	if ingress != nil {
		changed.Status.LoadBalancer.Ingress = ingress
	}
	if apiequality.Semantic.DeepEqual(s.Status, changed.Status) {
		return nil
	}
	if err := r.checkContest(changed); err != nil {
		return err
	}
	if err := r.Client.Status().Patch(ctx, changed, patchFrom(s)); err != nil {
		return err
	}
	r.recordWritten(changed)
	r.sendEvents(s, changed)
	return nil
}

func (r *Services) setCondition(s *corev1.Service, kind string, f finding) {
	status := metav1.ConditionFalse
	if f.ok {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: f.reason, Message: truncate(f.message), ObservedGeneration: s.Generation,
	})
}

// truncate cuts a text to the maximum length of conditions and events. The apiserver refuses longer
// ones.
func truncate(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	text = text[:maxMessage]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text
}

// sendEvents sends an event for each changed condition, and for new addresses.
func (r *Services) sendEvents(before, after *corev1.Service) {
	for _, kind := range []string{conditionAccepted, conditionProgrammed} {
		old, now := meta.FindStatusCondition(before.Status.Conditions, kind), meta.FindStatusCondition(after.Status.Conditions, kind)
		if now == nil || old != nil && old.Reason == now.Reason && old.Message == now.Message {
			continue
		}
		switch {
		case now.Status == metav1.ConditionFalse && now.Reason != reasonPending, now.Reason == address.ReasonOutside, now.Reason == address.ReasonShared, now.Reason == reasonPartial, now.Reason == reasonTooMany:
			r.Events.Eventf(after, nil, corev1.EventTypeWarning, now.Reason, "Sync", "%s", now.Message)
		case now.Status == metav1.ConditionTrue && old != nil && old.Status == metav1.ConditionFalse && old.Reason != reasonPending:
			r.Events.Eventf(after, nil, corev1.EventTypeNormal, now.Reason, "Sync", "%s", now.Message)
		}
	}
	if text := addressesOf(after); text != "" && text != addressesOf(before) {
		r.Events.Eventf(after, nil, corev1.EventTypeNormal, "AddressAssigned", "Sync", "Address %s", text)
	}
}

// ReportStuck sends an event that a balancer does not delete a service of a Service. The deletion
// of the Service may be waiting for it.
func (r *Services) ReportStuck(ctx context.Context, key types.NamespacedName, why string) {
	var s corev1.Service
	if r.Client.Get(ctx, key, &s) == nil {
		r.Events.Eventf(&s, nil, corev1.EventTypeWarning, reasonStuck, "Sync", "%s", truncate(why))
	}
}

// addressesOf returns the addresses and host names in a status.
func addressesOf(s *corev1.Service) string {
	var list []string
	for _, in := range s.Status.LoadBalancer.Ingress {
		list = append(list, in.IP+in.Hostname)
	}
	return strings.Join(list, ", ")
}

// ingress returns the addresses for a status. An address has ports if a balancer refuses some of
// them, or if Services share it: prepare needs them after a restart.
func (r *Services) ingress(a *accepted, addresses []netip.Addr, state *balancer.State) []corev1.LoadBalancerIngress {
	mode := r.IPMode
	out := []corev1.LoadBalancerIngress{}
	for _, ip := range addresses {
		in := corev1.LoadBalancerIngress{IP: ip.String(), IPMode: &mode}
		for _, p := range a.spec.Ports {
			status := corev1.PortStatus{Port: p.Port, Protocol: p.Protocol}
			if _, isRefused := state.Errors[translate.KeyOf(ip, p.Port, p.Protocol)]; isRefused {
				refused := portRefused
				status.Error = &refused
			}
			in.Ports = append(in.Ports, status)
		}
		if !r.Addresses.IsShared(ip) && !slices.ContainsFunc(in.Ports, func(p corev1.PortStatus) bool { return p.Error != nil }) {
			in.Ports = nil // all ports of the spec are served
		}
		out = append(out, in)
	}
	return out
}

// tooMany returns the message of reasonTooMany. It does not contain the number of pods: a rolling
// update would write the status for each of thousands.
func tooMany() string {
	return fmt.Sprintf("balancers take %d endpoints of a port, and the others get no connections: distribute the pods among several Services", translate.MaxEndpoints)
}

// programmed returns the condition Programmed for the state on balancers. last is the present
// condition.
func programmed(state *balancer.State, last *metav1.Condition) finding {
	wasServed := last != nil && last.Status == metav1.ConditionTrue
	switch {
	case state.Balancers == 0 && state.BalancersKnown:
		return finding{false, reasonNoBalancer, "there is no balancer: see --loxiURL, or the Service loxilb-lb-service"}
	case len(state.Errors) > 0:
		var list []string
		for key, why := range state.Errors {
			list = append(list, key+": "+why)
		}
		slices.Sort(list)
		return finding{false, reasonRefused, strings.Join(list, "; ")}
	case state.Endpoints == 0 && state.Reachable > 0:
		return finding{false, reasonNoEndpoint, "no endpoint is ready, so balancers refuse clients"}
	case state.Programmed && state.Omitted:
		return finding{true, reasonTooMany, tooMany()}
	case state.Programmed && state.Entries > 0:
		return finding{true, reasonProgrammed, "the balancers have the service"}
	case state.Reachable == 0 && state.Tried && state.BalancersKnown && (state.Silent || !wasServed):
		return finding{false, reasonNoBalancer, "no balancer answers"}
	case wasServed: // a change is being applied, or a daemon is being replaced
		return finding{true, last.Reason, last.Message}
	}
	if state.Problem != "" {
		return finding{false, reasonPending, "a balancer takes no changes now: " + state.Problem}
	}
	return finding{false, reasonPending, "waiting for a balancer"}
}
