package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
)

// nft writes what kube-proxy's nftables mode has for a service: the service is found in a map of verdicts, an endpoint
// by lot, and packets of an endpoint to itself are marked to be masqueraded.
func nft(_ context.Context, r *rig, s service) (netip.AddrPort, error) {
	if err := r.ownVIP(); err != nil {
		return netip.AddrPort{}, err
	}
	if s.held > 0 {
		if err := r.raiseConntrack(s.held); err != nil {
			return netip.AddrPort{}, err
		}
	}
	path, err := r.file("nft.conf", nftRules(s, r.addresses()))
	if err == nil {
		_, err = r.LB.Run("nft", "-f", path)
	}
	return s.at(vip), err
}

func (r *rig) addresses() (out []netip.Addr) {
	for _, h := range r.serving {
		out = append(out, endpointAddr(h))
	}
	return out
}

func nftRules(s service, endpoints []netip.Addr) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("table ip balance {")
	p("  chain mark-for-masquerade { meta mark set meta mark or 0x4000; }")
	var choices []string
	for i, a := range endpoints {
		p("  chain endpoint-%d {", i)
		p("    ip saddr %v jump mark-for-masquerade", a)
		p("    meta l4proto %s dnat to %v:%d", s.protocol, a, s.target)
		p("  }")
		choices = append(choices, fmt.Sprintf("%d : goto endpoint-%d", i, i))
	}
	p("  chain service-0 { numgen random mod %d vmap { %s }; }", len(endpoints), strings.Join(choices, ", "))
	p("  map services-by-address {")
	p("    type ipv4_addr . inet_proto . inet_service : verdict")
	p("    elements = { %v . %s . %d : goto service-0 }", vip, s.protocol, s.port)
	p("  }")
	p("  map services-without-endpoints { type ipv4_addr . inet_proto . inet_service : verdict; }")
	p("  chain services { ip daddr . meta l4proto . th dport vmap @services-by-address; }")
	p("  chain no-endpoint { ip daddr . meta l4proto . th dport vmap @services-without-endpoints; }")
	p("  chain masquerading {")
	p("    meta mark and 0x4000 == 0 return")
	p("    meta mark set meta mark xor 0x4000")
	p("    masquerade fully-random")
	p("  }")
	p("  chain nat-prerouting { type nat hook prerouting priority dstnat; jump services; }")
	p("  chain nat-output { type nat hook output priority -100; jump services; }")
	p("  chain nat-postrouting { type nat hook postrouting priority srcnat; jump masquerading; }")
	p("  chain filter-input { type filter hook input priority -110; ct state new jump no-endpoint; }")
	p("  chain filter-forward { type filter hook forward priority -110; ct state new jump no-endpoint; }")
	p("  chain filter-output { type filter hook output priority -110; ct state new jump no-endpoint; }")
	p("}")
	return b.String()
}

// raiseConntrack lets conntrack hold that many connections, with a bucket for each, until the rig is closed. Both are
// settings of the whole machine, as only its first namespace has them.
func (r *rig) raiseConntrack(n int) error {
	for _, name := range []string{"nf_conntrack_buckets", "nf_conntrack_max"} {
		file := "/proc/sys/net/netfilter/" + name
		before := readFile(file)
		if err := os.WriteFile(file, []byte(fmt.Sprint(n+n/8)), 0o644); err != nil {
			return err
		}
		r.Cleanup(func() { _ = os.WriteFile(file, []byte(before), 0o644) })
	}
	return nil
}

// ipvs balances by the kernel's own load balancer, in the one mode of its that leaves the endpoints as they are.
func ipvs(_ context.Context, r *rig, s service) (netip.AddrPort, error) {
	if err := r.ownVIP(); err != nil {
		return netip.AddrPort{}, err
	}
	flag := map[string]string{"tcp": "-t", "udp": "-u"}[s.protocol]
	address := s.at(vip).String()
	if _, err := r.LB.Run("ipvsadm", "-A", flag, address, "-s", "rr"); err != nil {
		return netip.AddrPort{}, err
	}
	for _, a := range r.addresses() {
		if _, err := r.LB.Run("ipvsadm", "-a", flag, address, "-r", fmt.Sprintf("%v:%d", a, s.target), "-m"); err != nil {
			return netip.AddrPort{}, err
		}
	}
	return s.at(vip), nil
}

func noIPVS() error {
	if _, err := os.Stat("/proc/net/ip_vs"); err != nil {
		return fmt.Errorf("the kernel has no IPVS (make bench-guest has one that does): %w", errMissing)
	}
	return needs("ipvsadm")()
}

// needs tells whether a program is installed.
func needs(program string) func() error {
	return func() error {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("program %s: %w", program, errMissing)
		}
		return nil
	}
}
