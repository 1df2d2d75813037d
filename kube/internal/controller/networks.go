package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// networkStatus is where Multus writes the addresses of a pod.
const networkStatus = "k8s.v1.cni.cncf.io/network-status"

// podAddresses returns the addresses of a Service's pods in Multus networks, by pod. Users of pods
// can write that annotation, but most may not write EndpointSlices, where the apiserver also
// refuses some addresses. So addresses that belong to others are omitted.
func (r *Services) podAddresses(ctx context.Context, s *corev1.Service, networks []string) (map[string][]netip.Addr, error) {
	var pods corev1.PodList
	err := r.Reader.List(ctx, &pods, client.InNamespace(s.Namespace), client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(s.Spec.Selector)})
	if err != nil {
		return nil, err
	}
	out, unverified, own := map[string][]netip.Addr{}, map[netip.Addr]bool{}, []string{}
	for i := range pods.Items {
		var status []struct {
			Name string
			IPs  []string
		}
		if json.Unmarshal([]byte(pods.Items[i].Annotations[networkStatus]), &status) != nil {
			continue
		}
		for _, n := range status {
			if slices.Contains(networks, n.Name) {
				out[pods.Items[i].Name] = append(out[pods.Items[i].Name], parseAddresses(n.IPs)...)
			}
		}
		for _, ip := range out[pods.Items[i].Name] {
			unverified[ip] = true
		}
		for _, ip := range pods.Items[i].Status.PodIPs {
			own = append(own, ip.IP)
		}
	}
	for _, ip := range parseAddresses(own) { // written by the kubelet
		delete(unverified, ip)
	}
	taken, err := r.owners(ctx, unverified, s.Namespace)
	if err != nil {
		return nil, err
	}
	for pod, list := range out {
		out[pod] = slices.DeleteFunc(list, func(ip netip.Addr) bool {
			if !unverified[ip] {
				return false
			}
			why := r.Addresses.Unusable(ip)
			if owner := taken[ip]; why == "" && owner != "" {
				why = fmt.Sprintf("address %s belongs to %s", ip, owner)
			}
			if why != "" {
				r.Events.Eventf(s, nil, corev1.EventTypeWarning, reasonEndpoint, "Sync", "%s", truncate(fmt.Sprintf("pod %s is no endpoint: %s", pod, why)))
			}
			return why != ""
		})
	}
	return out, nil
}

// parseAddresses returns the valid addresses of a list.
func parseAddresses(texts []string) (list []netip.Addr) {
	for _, text := range texts {
		if ip, err := netip.ParseAddr(text); err == nil {
			list = append(list, ip.Unmap())
		}
	}
	return list
}
