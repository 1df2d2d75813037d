package controller

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"loxilb/kube/internal/address"
	"loxilb/kube/internal/annotation"
)

// slots returns the slots of a Service's request: one for each family, then secondary ones of the
// first family.
func slots(s *corev1.Service, a *annotation.Settings) ([]address.Slot, error) {
	families := familiesOf(s, a)
	static := slices.Clone(a.Addresses)
	if len(static) == 0 && s.Spec.LoadBalancerIP != "" {
		ip, err := netip.ParseAddr(s.Spec.LoadBalancerIP)
		if err != nil {
			return nil, fmt.Errorf("loadBalancerIP %.100q is not an IP address", s.Spec.LoadBalancerIP)
		}
		static = []netip.Addr{ip.Unmap()}
	}
	for _, ip := range static {
		if !slices.Contains(families, ip.Is6()) {
			if len(static) == 1 && len(families) == 1 && a.Family == annotation.FamilyOfService && ip.Is6() {
				return nil, fmt.Errorf("address %s is IPv6, and the Service is not: set %sipam to ipv6to4 for IPv4 endpoints", ip, annotation.Prefix)
			}
			return nil, fmt.Errorf("address %s is of no IP family of the Service", ip)
		}
	}
	optional := s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack
	var out []address.Slot
	for i, isIPv6 := range families {
		slot := address.Slot{IPv6: isIPv6, Pool: a.Pool, Optional: optional && i > 0}
		if at := slices.IndexFunc(static, func(ip netip.Addr) bool { return ip.Is6() == isIPv6 }); at >= 0 {
			slot.Address = static[at]
		}
		out = append(out, slot)
	}
	for _, ip := range a.SecondaryAddresses {
		if ip.Is6() != families[0] {
			return nil, fmt.Errorf("annotation %ssecondaryIPs: %s is not of the family of the first VIP", annotation.Prefix, ip)
		}
		out = append(out, address.Slot{IPv6: ip.Is6(), Address: ip, Secondary: true})
	}
	if len(a.SecondaryAddresses) == 0 {
		for _, pool := range a.SecondaryPools {
			out = append(out, address.Slot{IPv6: families[0], Pool: pool, Secondary: true})
		}
	}
	return out, nil
}

// checkSources returns an error if a source range of a Service is invalid. The apiserver accepts
// some that programs read differently, such as 010.0.0.0/8. To ignore such a range could open the
// Service.
func checkSources(s *corev1.Service) error {
	for _, text := range s.Spec.LoadBalancerSourceRanges {
		if _, err := netip.ParsePrefix(strings.TrimSpace(text)); err != nil {
			return fmt.Errorf("loadBalancerSourceRanges has %.100q, which is not a prefix such as 192.0.2.0/24", text)
		}
	}
	return nil
}

// checkInstance returns an error if the instance of a Service does not exist: no balancer would
// have a role in it, so all of them would answer for its VIPs.
func (r *Services) checkInstance(a *annotation.Settings) error {
	roles := &r.Fleet.Roles
	if n := max(1, roles.Instances); roles.Enabled() && a.Instance >= n {
		return fmt.Errorf("annotation %szoneinstance: %d is no instance, as --numZoneInstances is %d", annotation.Prefix, a.Instance, n)
	}
	return nil
}

// checkMode returns an error if the flags forbid the mode of a Service: mode hostonearm takes
// ports, such as those of SSH and kubelet, from all addresses of the balancers' machines.
func (r *Services) checkMode(a *annotation.Settings) error {
	if a.Mode == annotation.HostMode && r.Defaults.Mode != annotation.HostMode && r.DenyHostMode {
		return fmt.Errorf("annotation %slbmode: hostonearm takes ports of all addresses of the nodes, which the controller's flag --deny-hostonearm forbids", annotation.Prefix)
	}
	return nil
}

// checkProbe returns an error if a Service's probe would send bytes of its choice to ports of nodes
// that are not its own: they could be a request to the API of a balancer.
func checkProbe(s *corev1.Service, a *annotation.Settings) error {
	raw := a.ProbeType == "" || a.ProbeType == "tcp" || a.ProbeType == "udp"
	if !a.Monitor || !raw || a.ProbeRequest == "" || a.ProbePort == 0 || a.PodNetwork || a.External {
		return nil
	}
	for _, p := range s.Spec.Ports {
		if int(p.NodePort) == a.ProbePort {
			return nil
		}
	}
	return fmt.Errorf("annotation %sprobereq: port %d of the nodes is no node port of the Service, so it gets no bytes: use probetype http, or omit probeport", annotation.Prefix, a.ProbePort)
}

// familiesOf returns for each VIP of a Service whether it is IPv6.
func familiesOf(s *corev1.Service, a *annotation.Settings) (isIPv6 []bool) {
	switch a.Family {
	case annotation.IPv4:
		return []bool{false}
	case annotation.IPv6, annotation.IPv6To4:
		return []bool{true}
	}
	for _, f := range s.Spec.IPFamilies {
		isIPv6 = append(isIPv6, f == corev1.IPv6Protocol)
	}
	if len(isIPv6) == 0 {
		isIPv6 = []bool{false}
	}
	return isIPv6
}

// ports returns the ports of a Service.
func ports(s *corev1.ServiceSpec) (list []address.Port) {
	for _, p := range s.Ports {
		protocol := p.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		list = append(list, address.Port{Protocol: string(protocol), Number: p.Port})
	}
	return list
}

// publishedPorts returns the ports in a status.
func publishedPorts(s *corev1.Service) (list []address.Port) {
	for _, in := range s.Status.LoadBalancer.Ingress {
		for _, p := range in.Ports {
			if port := (address.Port{Protocol: string(p.Protocol), Number: p.Port}); !slices.Contains(list, port) {
				list = append(list, port)
			}
		}
	}
	return list
}

// published returns the addresses in a status. The existing controller writes host names made of
// zone and address, such as llb-192.0.2.1.
func published(s *corev1.Service, zone string) (list []netip.Addr) {
	for _, in := range s.Status.LoadBalancer.Ingress {
		text := in.IP
		if text == "" {
			text = strings.TrimPrefix(in.Hostname, zone+"-")
			if text == in.Hostname {
				_, text, _ = strings.Cut(in.Hostname, "-")
			}
		}
		if ip, err := netip.ParseAddr(text); err == nil {
			list = append(list, ip.Unmap())
		}
	}
	return list
}

// split divides the addresses of slots into VIPs, one per family, and secondary addresses.
func split(addresses []netip.Addr, slots []address.Slot) (vips, secondary []netip.Addr) {
	count := 0
	for _, s := range slots {
		if s.Secondary {
			count++
		}
	}
	first := len(addresses) - count
	return addresses[:first], addresses[first:]
}
