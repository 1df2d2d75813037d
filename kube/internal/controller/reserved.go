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

// allNodes returns the nodes, sorted by name. After a change it reads them again, and reserves
// their addresses and those of balancers.
func (r *Services) allNodes(ctx context.Context) ([]translate.Node, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nodesFresh {
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
	r.nodesFresh = true
	r.scheduleSettled()
	return r.nodes, nil
}

// scheduleSettled schedules Services for the time when the next node is settled. One timer is
// enough, since nodes are read again then. r.mu is held.
func (r *Services) scheduleSettled() {
	var next time.Duration
	for i := range r.nodes {
		if d := r.nodes[i].SettlesIn(time.Now()); d > 0 && (next == 0 || d < next) {
			next = d
		}
	}
	if r.settleTimer != nil {
		r.settleTimer.Stop()
	}
	if next > 0 {
		r.settleTimer = time.AfterFunc(next, r.NodesChanged)
	}
}

// reserved returns the addresses that no Service gets: those of nodes, of their pods, and of
// balancers outside of the cluster, where administrators log in.
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

// owners returns the present owners of addresses that a Service or pod requests: a Service with
// this cluster IP, a Service of another load balancer, or a pod or the apiserver in an
// EndpointSlice. Pods of the namespace except do not count. Of several owners it returns the first
// by name: with a different one each time, the status would change forever.
func (r *Services) owners(ctx context.Context, requested map[netip.Addr]bool, except string) (map[netip.Addr]string, error) {
	owners := map[netip.Addr]string{}
	if len(requested) == 0 {
		return owners, nil
	}
	add := func(a netip.Addr, name string) {
		if first := owners[a]; requested[a] && (first == "" || name < first) {
			owners[a] = name
		}
	}
	var services corev1.ServiceList
	if err := r.Client.List(ctx, &services, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range services.Items {
		s := &services.Items[i]
		for a := range requestedOf(requested, s.Spec.ClusterIPs) {
			add(a, fmt.Sprintf("Service %s/%s, as its cluster IP", s.Namespace, s.Name))
		}
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer && !(r.isOfClass(s) && r.isOfZone(s)) {
			for _, a := range published(s, r.Zone) {
				add(a, fmt.Sprintf("Service %s/%s of another load balancer", s.Namespace, s.Name))
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
			for a := range requestedOf(requested, e.Addresses) {
				if isAPI {
					add(a, "the apiserver")
				}
				if e.TargetRef != nil && e.TargetRef.Kind == "Pod" && slice.Namespace != except {
					add(a, fmt.Sprintf("pod %s/%s", slice.Namespace, e.TargetRef.Name))
				}
			}
		}
	}
	return owners, nil
}

// requestedOf yields the addresses of a list that are requested.
func requestedOf(requested map[netip.Addr]bool, list []string) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, text := range list {
			a, err := netip.ParseAddr(text)
			if err == nil && requested[a.Unmap()] && !yield(a.Unmap()) {
				return
			}
		}
	}
}

// checkRequested returns why a Service cannot have addresses that it requests and does not have
// yet.
func (r *Services) checkRequested(ctx context.Context, slots []address.Slot, has []netip.Addr) (*address.Error, error) {
	requested := map[netip.Addr]bool{}
	for _, s := range slots {
		if s.Address.IsValid() && !slices.Contains(has, s.Address) {
			requested[s.Address] = true
		}
	}
	owners, err := r.owners(ctx, requested, "")
	if err != nil {
		return nil, err
	}
	for _, s := range slots {
		if owner := owners[s.Address]; owner != "" {
			return &address.Error{Reason: address.ReasonInvalid, Message: fmt.Sprintf("address %s belongs to %s", s.Address, owner)}, nil
		}
	}
	return nil, nil
}
