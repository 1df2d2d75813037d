package netdev

import (
	"errors"
	"fmt"
	"net"

	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/netdev/netlink"
)

// Preferences of the four rules for a mark; the kernel's own rules begin with 32,766.
const (
	preferOwner = 9990 + iota
	preferNetworks
	preferTunnel
	preferUnreachable
)

// rules returns the rules for marked packets: routes of the main table except its default routes,
// then the tunnel. Without a tunnel the destination is unreachable, so no packet leaves with the
// source address that the gateway should hide. The tunnel's own packets also carry the mark. Older
// kernels (6.1, not 6.18) route these packets by it, so they may need a default route to the owner.
func (one Gateway) rules() []*nl.Rule {
	owner, networks, tunnel, nowhere := nl.NewRule(), nl.NewRule(), nl.NewRule(), nl.NewRule()
	bits := one.Addr.BitLen()
	owner.Priority, owner.Table = preferOwner, unix.RT_TABLE_MAIN
	owner.Dst = &net.IPNet{IP: one.Addr.AsSlice(), Mask: net.CIDRMask(bits, bits)}
	networks.Priority, networks.Table, networks.SuppressPrefixlen = preferNetworks, unix.RT_TABLE_MAIN, 0
	tunnel.Priority, tunnel.Table = preferTunnel, int(one.tunnelNumber())
	nowhere.Priority, nowhere.Type = preferUnreachable, unix.RTN_UNREACHABLE
	list, mask := []*nl.Rule{owner, networks, tunnel, nowhere}, uint32(GatewayMarkMask)
	if one.collides {
		list = []*nl.Rule{nowhere}
	}
	for _, r := range list {
		r.Mark, r.Mask, r.Protocol, r.Family = one.Mark, &mask, netlink.OwnProtocol, unix.AF_INET
		if one.Addr.Is6() {
			r.Family = unix.AF_INET6
		}
	}
	return list
}

// syncRules makes the rules for marked packets, and removes rules for other marks.
func (g *Gateways) syncRules(list []Gateway) error {
	missing, others, err := g.compareRules(list)
	if err != nil {
		return err
	}
	var errs []error
	for _, rule := range missing {
		if err := g.nl.RuleAdd(rule); err != nil && !errors.Is(err, unix.EEXIST) {
			errs = append(errs, fmt.Errorf("make the rule of mark %#x: %w", rule.Mark, err))
		}
	}
	for _, rule := range others {
		if err := g.nl.RuleDel(&rule); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("remove the rule of mark %#x: %w", rule.Mark, err))
		}
	}
	return errors.Join(errs...)
}

// RulesMissing reports whether the kernel lacks rules of Set: systemd-networkd, for example,
// removes unknown rules.
func (g *Gateways) RulesMissing() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	missing, _, err := g.compareRules(g.set)
	return err == nil && len(missing) > 0
}

// compareRules returns the rules that the kernel lacks, and its additional ones.
func (g *Gateways) compareRules(list []Gateway) (missing []*nl.Rule, others map[string]nl.Rule, err error) {
	others, err = g.rules()
	if err != nil {
		return nil, nil, err
	}
	for _, one := range list {
		for _, rule := range one.rules() {
			key := ruleKey(rule)
			if _, there := others[key]; !there {
				missing = append(missing, rule)
			}
			delete(others, key)
		}
	}
	return missing, others, nil
}

// rules returns the rules of this package in the kernel.
func (g *Gateways) rules() (map[string]nl.Rule, error) {
	have := map[string]nl.Rule{}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := dump(func() ([]nl.Rule, error) { return g.nl.RuleList(family) })
		if err != nil {
			return nil, fmt.Errorf("list the rules of routing: %w", err)
		}
		for _, rule := range list {
			if rule.Protocol == netlink.OwnProtocol && rule.Priority >= preferOwner && rule.Priority <= preferUnreachable {
				rule.Family = family
				have[ruleKey(&rule)] = rule
			}
		}
	}
	return have, nil
}

func ruleKey(r *nl.Rule) string {
	mask := uint32(0)
	if r.Mask != nil {
		mask = *r.Mask
	}
	return fmt.Sprint(r.Family, " ", r.Priority, " ", r.Mark, "/", mask, " ", r.Table, " ", r.Dst)
}
