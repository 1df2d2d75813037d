package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"loxilb/internal/netnstest"
)

// loxilbXDP has the other ends of the balancer's veths take frames from XDP first.
func loxilbXDP(ctx context.Context, r *rig, s service) (netip.AddrPort, error) {
	for _, h := range append([]*netnstest.Host{r.Client}, r.serving...) {
		if _, err := h.Run("ethtool", "-K", "eth0", "gro", "on"); err != nil {
			return netip.AddrPort{}, err
		}
	}
	return loxilb("default", "--xdp", "native")(ctx, r, s)
}

// loxilb runs the daemon with more flags and one service in a mode.
func loxilb(mode string, args ...string) setup {
	return loxilbOf("", mode, args...)
}

// loxilbOther is how a change is compared with what was before it: by turns, in one run.
func loxilbOther(ctx context.Context, r *rig, s service) (netip.AddrPort, error) {
	return loxilbOf(os.Getenv("LOXILB_OTHER"), "default")(ctx, r, s)
}

func noOther() error {
	dir := os.Getenv("LOXILB_OTHER")
	if dir == "" {
		return fmt.Errorf("%w: LOXILB_OTHER is not set to a directory with loxilb and loxicmd", errMissing)
	}
	_, err := os.Stat(dir + "/loxilb")
	return err
}

// loxilbOf is of the build in a directory; "": this one's.
func loxilbOf(bin, mode string, args ...string) setup {
	return func(ctx context.Context, r *rig, s service) (netip.AddrPort, error) {
		if bin == "" {
			bin = r.bin
		}
		flags := slices.Clone(args)
		if s.held > 0 {
			flags = append(flags, "--ct-max", fmt.Sprint(s.held+s.held/8))
		}
		d, err := r.LB.StartDaemon(ctx, netnstest.DaemonOptions{Bin: bin, Args: flags})
		if err != nil {
			return netip.AddrPort{}, err
		}
		if cpus := r.cpus.lb; len(cpus) > 0 {
			if _, err := r.LB.Run("taskset", "-a", "-cp", cpuList(cpus), fmt.Sprint(d.Pid())); err != nil {
				return netip.AddrPort{}, err
			}
		}
		var endpoints []string
		for _, h := range r.serving {
			endpoints = append(endpoints, endpointAddr(h).String()+":1")
		}
		_, err = d.Command("create", "lb", vip.String(), fmt.Sprintf("--%s=%d:%d", s.protocol, s.port, s.target),
			"--endpoints="+strings.Join(endpoints, ","), "--mode="+mode)
		return s.at(vip), err
	}
}
