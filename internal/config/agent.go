package config

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"
)

// Agent holds the options of `loxilb agent`.
type Agent struct {
	Interfaces []string
	VIPs       []netip.Addr
	From       []netip.Prefix // accepted outer sources
	Port       uint16         // of GUE
}

const agentLong = `loxilb agent runs on endpoints of services in mode dsr with a tunnel. It removes the outer
header of packets to the VIPs before the kernel sees them, so the endpoint needs no tunnel device. It
runs until it is stopped, and leaves nothing behind.

It decapsulates packets for a VIP from --from to an address of this machine: IPv4 or IPv6 in IPv4 or
IPv6 (--tunnel=ipip), and in UDP (--tunnel=gue). Other packets go to the kernel unchanged.`

const agentExample = `  loxilb agent --decap --interface=eth0 --vip=20.20.20.1
  loxilb agent --decap --interface=eth0 --vip=20.20.20.1,2001:db8:20::1 --from=31.31.31.254,2001:db8:31::/64`

// TunnelSources returns the prefixes of the outer sources of --tunnel=ipip.
func TunnelSources() []string { return []string{"198.18.0.0/15", "100::/64"} }

// AgentCommand returns the subcommand for endpoints; run works until its context ends.
func AgentCommand(run func(context.Context, *Agent) error) *cobra.Command {
	var decap bool
	var vips, from []string
	a := &Agent{}
	cmd := &cobra.Command{
		Use:     "agent --decap --interface=NAME,... --vip=IP,...",
		Short:   "Remove tunnel headers on an endpoint",
		Long:    agentLong,
		Example: agentExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !decap {
				return errors.New("agent: --decap is missing (the only supported action)")
			}
			if err := a.parse(vips, from); err != nil {
				return err
			}
			if err := run(cmd.Context(), a); err != nil {
				return failedError{err}
			}
			return nil
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&decap, "decap", false, "remove outer headers of packets to the VIPs")
	fs.StringSliceVar(&a.Interfaces, "interface", nil, "interfaces that receive the packets, comma-separated")
	fs.StringSliceVar(&vips, "vip", nil, "VIPs, which this machine must have on lo, comma-separated")
	fs.StringSliceVar(&from, "from", TunnelSources(), "accept these outer sources: addresses or prefixes of the load balancers for --tunnel=gue; the default is for --tunnel=ipip")
	fs.Uint16Var(&a.Port, "gue-port", 6080, "UDP port of --tunnel=gue")
	return cmd
}

func (a *Agent) parse(vips, from []string) error {
	if len(a.Interfaces) == 0 {
		return errors.New("--interface is missing: give interface names, comma-separated")
	}
	if len(vips) == 0 {
		return errors.New("--vip is missing: give IP addresses, comma-separated")
	}
	if a.Port == 0 {
		return errors.New("--gue-port 0 is out of range (allowed: 1 to 65535)")
	}
	for _, s := range vips {
		ip, err := netip.ParseAddr(s)
		if err != nil || ip.Zone() != "" || ip.Is4In6() {
			return fmt.Errorf("--vip %q is not an IP address (allowed: IPv4 or IPv6, without a zone)", s)
		}
		a.VIPs = append(a.VIPs, ip)
	}
	for _, s := range from {
		p, err := netip.ParsePrefix(s)
		if ip, aerr := netip.ParseAddr(s); aerr == nil {
			p, err = ip.Prefix(ip.BitLen())
		}
		if err != nil || p.Addr().Is4In6() || p.Addr().Zone() != "" {
			return fmt.Errorf("--from %q is not an address or a prefix (allowed: IP or IP/LENGTH)", s)
		}
		a.From = append(a.From, p.Masked())
	}
	return nil
}
