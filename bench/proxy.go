package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

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

// streamModule returns the file of nginx's stream module where it is one; none where it is built
// in.
func streamModule() string {
	for _, pattern := range []string{"/usr/lib/nginx/modules/ngx_stream_module.so", "/usr/lib*/nginx/modules/ngx_stream_module.so"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0]
		}
	}
	return ""
}

// forBalancer returns how many CPUs the balancer may use.
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
