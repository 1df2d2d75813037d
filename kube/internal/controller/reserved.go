package controller

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"loxilb/kube/internal/address"
	"loxilb/kube/internal/translate"
)

// allNodes returns the nodes, whose addresses are reserved like those of balancers. It reads them
// once after each change.
func (r *Services) allNodes(ctx context.Context) ([]translate.Node, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fresh {
		return r.nodes, nil
	}
	var list corev1.NodeList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	r.nodes = make([]translate.Node, 0, len(list.Items))
	for i := range list.Items {
		r.nodes = append(r.nodes, translate.NodeOf(&list.Items[i]))
	}
	slices.SortFunc(r.nodes, func(a, b translate.Node) int { return cmp.Compare(a.Name, b.Name) })
	r.Addresses.SetReserved(reserved(r.nodes, r.Fleet.Addresses()))
	r.fresh = true
	r.awaitSettled()
	return r.nodes, nil
}

// awaitSettled has Services reconciled when the next node may be an endpoint. One timer is enough,
// as nodes are read again then. r.mu is held.
func (r *Services) awaitSettled() {
	var next time.Duration
	for i := range r.nodes {
		if d := r.nodes[i].Settles(time.Now()); d > 0 && (next == 0 || d < next) {
			next = d
		}
	}
	if r.settling != nil {
		r.settling.Stop()
	}
	if next > 0 {
		r.settling = time.AfterFunc(next, r.NodesChanged)
	}
}

// reserved returns the addresses that no Service gets: those of nodes, of their pods, and of
// balancers outside of the cluster, whose administrators log in there.
func reserved(nodes []translate.Node, balancers map[netip.Addr]string) address.Reserved {
	out := address.Reserved{Addresses: map[netip.Addr]string{}, Prefixes: map[netip.Prefix]string{}}
	for a, url := range balancers {
		out.Addresses[a] = "balancer " + url
	}
	for i := range nodes {
		n := &nodes[i]
		for _, a := range slices.Concat(n.Addresses, n.External) {
			out.Addresses[a] = "node " + n.Name
		}
		for _, p := range n.Pods {
			out.Prefixes[p] = "the pods of node " + n.Name
		}
	}
	return out
}

// inUse returns the owner of an address that a Service requests: another Service's cluster IP, a
// Service of another load balancer, or a pod or the apiserver listed in an EndpointSlice. It
// returns "" if the address is free. Of several owners it returns the first by name: another one
// each time would change the status for ever.
func (r *Services) inUse(ctx context.Context, asked netip.Addr) (owner string, err error) {
	found := func(name string) {
		if owner == "" || name < owner {
			owner = name
		}
	}
	var services corev1.ServiceList
	if err := r.Client.List(ctx, &services, client.UnsafeDisableDeepCopy); err != nil {
		return "", err
	}
	for i := range services.Items {
		if s := &services.Items[i]; slices.ContainsFunc(s.Spec.ClusterIPs, isAddress(asked)) {
			found(fmt.Sprintf("Service %s/%s, as its cluster IP", s.Namespace, s.Name))
		} else if s.Spec.Type == corev1.ServiceTypeLoadBalancer && !(r.ofClass(s) && r.ofZone(s)) && slices.Contains(published(s, r.Zone), asked) {
			found(fmt.Sprintf("Service %s/%s of another load balancer", s.Namespace, s.Name))
		}
	}
	var endpoints discoveryv1.EndpointSliceList
	if err := r.Client.List(ctx, &endpoints, client.UnsafeDisableDeepCopy); err != nil {
		return "", err
	}
	for i := range endpoints.Items {
		isAPI := endpoints.Items[i].Namespace == "default" && endpoints.Items[i].Labels[discoveryv1.LabelServiceName] == "kubernetes"
		for j := range endpoints.Items[i].Endpoints {
			e := &endpoints.Items[i].Endpoints[j]
			if isAPI && slices.ContainsFunc(e.Addresses, isAddress(asked)) {
				found("the apiserver")
			}
			if e.TargetRef != nil && e.TargetRef.Kind == "Pod" && slices.ContainsFunc(e.Addresses, isAddress(asked)) {
				found(fmt.Sprintf("pod %s/%s", endpoints.Items[i].Namespace, e.TargetRef.Name))
			}
		}
	}
	return owner, nil
}

func isAddress(a netip.Addr) func(string) bool {
	return func(text string) bool {
		b, err := netip.ParseAddr(text)
		return err == nil && b.Unmap() == a
	}
}

// checkAsked returns why a Service cannot have addresses that it asks for, and has not got yet.
func (r *Services) checkAsked(ctx context.Context, slots []address.Slot, has []netip.Addr) (*address.Error, error) {
	for _, s := range slots {
		if !s.Address.IsValid() || slices.Contains(has, s.Address) {
			continue
		}
		who, err := r.inUse(ctx, s.Address)
		if err != nil {
			return nil, err
		}
		if who != "" {
			return &address.Error{Reason: address.ReasonInvalid, Message: fmt.Sprintf("address %s belongs to %s", s.Address, who)}, nil
		}
	}
	return nil, nil
}
