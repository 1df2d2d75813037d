package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"loxilb/test/netnstest"
)

// loxilbXDP starts the daemon with native XDP. A veth receives frames that XDP sends only if its
// end uses NAPI, so it enables GRO at the other ends of the balancer's veths.
func loxilbXDP(ctx context.Context, r *rig, s service) (netip.AddrPort, error) {
	for _, h := range append([]*netnstest.Host{r.Client}, r.serving...) {
		if _, err := h.Run("ethtool", "-K", "eth0", "gro", "on"); err != nil {
			return netip.AddrPort{}, err
		}
	}
	return loxilb("default", "--xdp", "native")(ctx, r, s)
}

// loxilb starts the daemon with additional flags and creates one service in a mode.
func loxilb(mode string, args ...string) setup {
	return loxilbOf("", mode, args...)
}

// loxilbOther runs another build (LOXILB_OTHER), so a change is compared with its base in
// interleaved rounds.
func loxilbOther(ctx context.Context, r *rig, s service) (netip.AddrPort, error) {
	return loxilbOf(os.Getenv("LOXILB_OTHER"), "default")(ctx, r, s)
}

func checkOtherBuild() error {
	dir := os.Getenv("LOXILB_OTHER")
	if dir == "" {
		return fmt.Errorf("%w: LOXILB_OTHER is not set to a directory with loxilb and loxicmd", errMissing)
	}
	_, err := os.Stat(dir + "/loxilb")
	return err
}

// loxilbOf is loxilb with the build in directory bin; empty: this build.
func loxilbOf(bin, mode string, args ...string) setup {
	return func(ctx context.Context, r *rig, s service) (netip.AddrPort, error) {
		d, err := r.daemon(ctx, s, bin, args...)
		if err != nil {
			return netip.AddrPort{}, err
		}
		return s.address(), createService(d, s, s.vip().String(), mode, r)
	}
}

// loxilbHost balances packets to the balancer's own addresses: mode hostonearm.
func loxilbHost(ctx context.Context, r *rig, s service) (netip.AddrPort, error) {
	d, err := r.daemon(ctx, s, "")
	if err != nil {
		return netip.AddrPort{}, err
	}
	client := netnstest.StandardNetworks()[0]
	vip, own := netip.IPv4Unspecified(), client.GW4 // the VIP of all own addresses
	if s.v6 {
		vip, own = netip.IPv6Unspecified(), client.GW6
	}
	return netip.AddrPortFrom(own, uint16(s.port)), createService(d, s, vip.String(), "hostonearm", r)
}

// loxilbDSR configures endpoints to answer directly: it adds the VIP to each, and a link to the
// client.
func loxilbDSR(ctx context.Context, r *rig, s service) (netip.AddrPort, error) {
	for i, h := range r.serving {
		here, there := s.direct(i, 1), s.direct(i, 254)
		err := r.Link(netnstest.End{Host: h, Interface: "direct", Addresses: []netip.Prefix{here}},
			netnstest.End{Host: r.Client, Interface: fmt.Sprintf("direct%d", i), Addresses: []netip.Prefix{there}}, 0)
		if err == nil {
			err = addAddress(h, s.vip())
		}
		for _, p := range s.clients() {
			if err == nil {
				err = h.AddRoute(p, there.Addr())
			}
		}
		if err != nil {
			return netip.AddrPort{}, err
		}
	}
	return loxilb("dsr")(ctx, r, s)
}

// daemon starts the loxilb in directory bin, with additional flags, on the balancer's CPUs.
func (r *rig) daemon(ctx context.Context, s service, bin string, args ...string) (*netnstest.Daemon, error) {
	if bin == "" {
		bin = r.bin
	}
	flags := slices.Clone(args)
	if room := max(r.table, s.held+s.held/8); room > 0 {
		flags = append(flags, "--ct-max", fmt.Sprint(room))
	}
	d, err := r.LB.StartDaemon(ctx, netnstest.DaemonOptions{Bin: bin, Args: flags})
	if err != nil {
		return nil, err
	}
	r.daemonPid = d.Pid()
	if cpus := r.cpus.lb; len(cpus) > 0 {
		if _, err := r.LB.Run("taskset", "-a", "-cp", cpuList(cpus), fmt.Sprint(d.Pid())); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// createService creates a service in a mode.
func createService(d *netnstest.Daemon, s service, vip, mode string, r *rig) error {
	var endpoints []string
	for i, a := range s.addresses(r) {
		one := netip.AddrPortFrom(a, 1).String() // ADDRESS:WEIGHT has the form of an address with a port
		if s.serverIDs {
			one += fmt.Sprintf("#%02x", serverID(i))
		}
		endpoints = append(endpoints, one)
	}
	args := []string{"create", "lb", vip, "--endpoints=" + strings.Join(endpoints, ","), "--mode=" + mode}
	args = append(args, s.options...)
	for _, p := range s.ports() {
		args = append(args, fmt.Sprintf("--%s=%d:%d", p.protocol, p.port, p.target))
	}
	_, err := d.Command(args...)
	return err
}
