package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// nft writes the rules of kube-proxy's nftables mode: a verdict map finds the service, a random
// number the endpoint, and an endpoint's packets to itself are marked for masquerading.
func nft(_ context.Context, r *rig, s service) (netip.AddrPort, error) {
	if err := r.ownVIP(s); err != nil {
		return netip.AddrPort{}, err
	}
	if s.held > 0 {
		if err := r.raiseConntrack(s.held); err != nil {
			return netip.AddrPort{}, err
		}
	}
	path, err := r.file("nft.conf", nftRules(s, s.addresses(r)))
	if err == nil {
		_, err = r.LB.Run("nft", "-f", path)
	}
	return s.address(), err
}

func nftRules(s service, endpoints []netip.Addr) string {
	ip, address := "ip", "ipv4_addr"
	if s.v6 {
		ip, address = "ip6", "ipv6_addr"
	}
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("table %s balance {", ip)
	p("  chain mark-for-masquerade { meta mark set meta mark or 0x4000; }")
	var elements []string
	for n, port := range s.ports() {
		var choices []string
		for i, a := range endpoints {
			p("  chain endpoint-%d-%d {", n, i)
			p("    %s saddr %v jump mark-for-masquerade", ip, a)
			p("    meta l4proto %s dnat to %v", port.protocol, port.at(a))
			p("  }")
			choices = append(choices, fmt.Sprintf("%d : goto endpoint-%d-%d", i, n, i))
		}
		p("  chain service-%d { numgen random mod %d vmap { %s }; }", n, len(endpoints), strings.Join(choices, ", "))
		elements = append(elements, fmt.Sprintf("%v . %s . %d : goto service-%d", s.vip(), port.protocol, port.port, n))
	}
	p("  map services-by-address {")
	p("    type %s . inet_proto . inet_service : verdict", address)
	p("    elements = { %s }", strings.Join(elements, ", "))
	p("  }")
	p("  map services-without-endpoints { type %s . inet_proto . inet_service : verdict; }", address)
	p("  chain services { %s daddr . meta l4proto . th dport vmap @services-by-address; }", ip)
	p("  chain no-endpoint { %s daddr . meta l4proto . th dport vmap @services-without-endpoints; }", ip)
	p("  chain masquerading {")
	p("    meta mark and 0x4000 == 0 return")
	p("    meta mark set meta mark xor 0x4000")
	p("    masquerade fully-random")
	p("  }")
	if s.helper != "" {
		p("  ct helper related { type %q protocol %s; }", s.helper, s.protocol)
		p("  chain helpers {")
		p("    type filter hook prerouting priority filter")
		p("    %s dport %d ct helper set related", s.protocol, s.target)
		p("  }")
	}
	p("  chain nat-prerouting { type nat hook prerouting priority dstnat; jump services; }")
	p("  chain nat-output { type nat hook output priority -100; jump services; }")
	p("  chain nat-postrouting { type nat hook postrouting priority srcnat; jump masquerading; }")
	p("  chain filter-input { type filter hook input priority -110; ct state new jump no-endpoint; }")
	p("  chain filter-forward { type filter hook forward priority -110; ct state new jump no-endpoint; }")
	p("  chain filter-output { type filter hook output priority -110; ct state new jump no-endpoint; }")
	p("}")
	return b.String()
}

// nftSynproxy puts the kernel's SYN proxy in front: it answers SYNs by cookies, and conntrack
// tracks clients that return them.
func nftSynproxy(ctx context.Context, r *rig, s service) (netip.AddrPort, error) {
	to, err := nft(ctx, r, s)
	if err != nil {
		return to, err
	}
	if err := r.LB.Sysctl("net/netfilter/nf_conntrack_tcp_loose", "0"); err != nil { // an ACK alone makes no connection
		return to, err
	}
	path, err := r.file("synproxy.conf", synproxyRules(s))
	if err == nil {
		_, err = r.LB.Run("nft", "-f", path)
	}
	return to, err
}

func synproxyRules(s service) string {
	ip := "ip"
	if s.v6 {
		ip = "ip6"
	}
	return fmt.Sprintf(`table %[1]s proxy {
  chain prerouting {
    type filter hook prerouting priority raw;
    %[1]s daddr %[2]v tcp dport %[3]d tcp flags & (fin | syn | rst | ack) == syn notrack
  }
  chain input {
    type filter hook input priority filter;
    %[1]s daddr %[2]v tcp dport %[3]d ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm
    %[1]s daddr %[2]v tcp dport %[3]d ct state invalid drop
  }
}
`, ip, s.vip(), s.port)
}

// raiseConntrack lets conntrack hold that many connections, with a bucket for each, until the rig
// is closed. Both are settings of the whole machine, as only its first namespace has them.
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

// ipvs uses the kernel's own load balancer, in its only mode that needs no change at the endpoints.
func ipvs(_ context.Context, r *rig, s service) (netip.AddrPort, error) {
	if err := r.ownVIP(s); err != nil {
		return netip.AddrPort{}, err
	}
	if s.helper != "" { // its helpers need conntrack
		if err := r.LB.Sysctl("net/ipv4/vs/conntrack", "1"); err != nil {
			return netip.AddrPort{}, err
		}
	}
	for _, p := range s.ports() {
		flag, address := map[string]string{"tcp": "-t", "udp": "-u", "sctp": "--sctp-service"}[p.protocol], netip.AddrPortFrom(s.vip(), uint16(p.port)).String()
		if _, err := r.LB.Run("ipvsadm", "-A", flag, address, "-s", "rr"); err != nil {
			return netip.AddrPort{}, err
		}
		for _, a := range s.addresses(r) {
			if _, err := r.LB.Run("ipvsadm", "-a", flag, address, "-r", p.at(a).String(), "-m"); err != nil {
				return netip.AddrPort{}, err
			}
		}
	}
	return s.address(), nil
}

func noIPVS() error {
	if _, err := os.Stat("/proc/net/ip_vs"); err != nil {
		return fmt.Errorf("the kernel has no IPVS (make bench-guest has one that does): %w", errMissing)
	}
	return needs("ipvsadm")()
}

// needs returns a check that a program is installed.
func needs(program string) func() error {
	return func() error {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("program %s: %w", program, errMissing)
		}
		return nil
	}
}

// haproxy runs HAProxy in mode tcp without logs.
func haproxy(ctx context.Context, r *rig, s service) (netip.AddrPort, error) {
	var b strings.Builder
	fmt.Fprintf(&b, `global
	nbthread %d
	maxconn 9000
defaults
	mode tcp
	timeout connect 5s
	timeout client 1m
	timeout server 1m
`, r.cpus.forBalancer())
	for _, p := range s.proxied() {
		fmt.Fprintf(&b, "listen service-%d\n\tbind %v\n\tbalance roundrobin\n", p.port, netip.AddrPortFrom(s.vip(), uint16(p.port)))
		for i, a := range s.addresses(r) {
			fmt.Fprintf(&b, "\tserver ep%d %v\n", i+1, p.at(a))
		}
	}
	path, err := r.file("haproxy.cfg", b.String())
	if err != nil {
		return netip.AddrPort{}, err
	}
	return r.proxy(ctx, s, "haproxy", "-db", "-f", path)
}

// nginx runs nginx's stream module without logs.
func nginx(ctx context.Context, r *rig, s service) (netip.AddrPort, error) {
	var b strings.Builder
	if module := streamModule(); module != "" {
		fmt.Fprintf(&b, "load_module %s;\n", module)
	}
	fmt.Fprintf(&b, `user root;
worker_processes %d;
worker_rlimit_nofile 19000;
pid %s/nginx.pid;
error_log stderr error;
daemon off;
events { worker_connections 9000; }
stream {
`, r.cpus.forBalancer(), r.dir)
	for _, p := range s.proxied() {
		fmt.Fprintf(&b, "\tupstream endpoints-%d {\n", p.port)
		for _, a := range s.addresses(r) {
			fmt.Fprintf(&b, "\t\tserver %v;\n", p.at(a))
		}
		fmt.Fprintf(&b, "\t}\n\tserver { listen %v reuseport backlog=4096; proxy_pass endpoints-%d; }\n",
			netip.AddrPortFrom(s.vip(), uint16(p.port)), p.port)
	}
	b.WriteString("}\n")
	path, err := r.file("nginx.conf", b.String())
	if err != nil {
		return netip.AddrPort{}, err
	}
	return r.proxy(ctx, s, "nginx", "-e", "stderr", "-p", r.dir, "-c", path)
}

// proxied returns the ports that a proxy balances: of TCP alone.
func (s service) proxied() []balancedPort {
	return slices.DeleteFunc(s.ports(), func(p balancedPort) bool { return p.protocol != "tcp" })
}

// streamModule returns the file of nginx's stream module, or "" if the module is built in.
func streamModule() string {
	for _, pattern := range []string{"/usr/lib/nginx/modules/ngx_stream_module.so", "/usr/lib*/nginx/modules/ngx_stream_module.so"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0]
		}
	}
	return ""
}

// forBalancer returns the number of the balancer's CPUs.
func (l layout) forBalancer() int {
	if len(l.lb) > 0 {
		return len(l.lb)
	}
	return runtime.NumCPU()
}

// proxy runs a proxy in the balancer's namespace and waits until it takes connections.
func (r *rig) proxy(ctx context.Context, s service, args ...string) (netip.AddrPort, error) {
	if err := r.ownVIP(s); err != nil {
		return netip.AddrPort{}, err
	}
	p, err := r.start(r.LB, args...)
	if err != nil {
		return netip.AddrPort{}, err
	}
	err = until(ctx, func() error {
		select {
		case <-p.Done():
			return fmt.Errorf("%s ended: %w\n%s", args[0], os.ErrProcessDone, p.Output())
		default:
		}
		dial, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		c, err := r.LB.DialContext(dial, "tcp", s.address().String())
		if err == nil {
			_ = c.Close()
		}
		return err
	})
	return s.address(), err
}
