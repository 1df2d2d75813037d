package controller

import (
	"cmp"
	"context"
	"fmt"
	"iter"
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
		if d := r.nodes[i].SettlesIn(time.Now()); d > 0 && (next == 0 || d < next) {
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
		for _, a := range slices.Concat(n.Addresses, n.ExternalAddresses) {
			out.Addresses[a] = "node " + n.Name
		}
		for _, p := range n.PodCIDRs {
			out.Prefixes[p] = "the pods of node " + n.Name
		}
	}
	return out
}

// inUse returns the owner of an address that a Service requests, or nothing: see owners.
func (r *Services) inUse(ctx context.Context, asked netip.Addr) (string, error) {
	owners, err := r.owners(ctx, map[netip.Addr]bool{asked: true}, "")
	return owners[asked], err
}

// owners returns the owners of addresses: another Service's cluster IP, a Service of another load
// balancer, or a pod or the apiserver listed in an EndpointSlice, but no pods of one namespace. Of
// several owners it returns the first by name: another one each time would change the status for
// ever.
func (r *Services) owners(ctx context.Context, asked map[netip.Addr]bool, but string) (map[netip.Addr]string, error) {
	owners := map[netip.Addr]string{}
	if len(asked) == 0 {
		return owners, nil
	}
	found := func(a netip.Addr, name string) {
		if first := owners[a]; asked[a] && (first == "" || name < first) {
			owners[a] = name
		}
	}
	var services corev1.ServiceList
	if err := r.Client.List(ctx, &services, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range services.Items {
		s := &services.Items[i]
		for a := range wanted(asked, s.Spec.ClusterIPs) {
			found(a, fmt.Sprintf("Service %s/%s, as its cluster IP", s.Namespace, s.Name))
		}
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer && !(r.ofClass(s) && r.ofZone(s)) {
			for _, a := range published(s, r.Zone) {
				found(a, fmt.Sprintf("Service %s/%s of another load balancer", s.Namespace, s.Name))
			}
		}
	}
	var endpoints discoveryv1.EndpointSliceList
	if err := r.Client.List(ctx, &endpoints, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range endpoints.Items {
		slice := &endpoints.Items[i]
		isAPI := slice.Namespace == "default" && slice.Labels[discoveryv1.LabelServiceName] == "kubernetes"
		for j := range slice.Endpoints {
			e := &slice.Endpoints[j]
			for a := range wanted(asked, e.Addresses) {
				if isAPI {
					found(a, "the apiserver")
				}
				if e.TargetRef != nil && e.TargetRef.Kind == "Pod" && slice.Namespace != but {
					found(a, fmt.Sprintf("pod %s/%s", slice.Namespace, e.TargetRef.Name))
				}
			}
		}
	}
	return owners, nil
}

// wanted yields the addresses of a list that are asked for.
func wanted(asked map[netip.Addr]bool, list []string) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, text := range list {
			a, err := netip.ParseAddr(text)
			if err == nil && asked[a.Unmap()] && !yield(a.Unmap()) {
				return
			}
		}
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
