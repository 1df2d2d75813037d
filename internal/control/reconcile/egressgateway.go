package reconcile

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

// Gateways routes packets to the node that owns the source address of their rule: an
// *egress.Gateways. nil: each node translates them itself.
type Gateways interface {
	// Set is idempotent, and repairs what others have removed. It returns the error of each
	// failing gateway; err concerns all of them.
	Set([]netdev.Gateway) (failed map[netip.Addr]error, err error)
	// Uses reports whether Set depends on the interface of this name.
	Uses(link string) bool
	// RulesMissing reports whether others have removed routing rules of Set.
	RulesMissing() bool
}

// errStatic is the error of a rule whose source address cannot move with the role.
var errStatic = errors.New("it is a static address of this machine, so this node translates in role BACKUP as well; " +
	"use an address that no node has, which loxilb gives to the MASTER")

// egressRules are the rules of one node of a cluster.
type egressRules struct {
	rules    []policy.Rule
	gateways []netdev.Gateway // sorted by address
	static   []netip.Addr     // addresses of this machine whose role another node has
}

// egressOf returns this node's rules, given the roles of its instances. A rule for default routes
// whose source address belongs to another node marks packets instead of translating them. A static
// address of this machine belongs to no other node: a tunnel to it would lead back here.
func egressOf(list []policy.Rule, instances map[string]lb.Instance, isStatic func(netip.Addr) bool) egressRules {
	out := egressRules{rules: slices.Clone(list)}
	var sources []netip.Addr
	for i := range list {
		if list[i].Action == policy.RuleSNAT && list[i].OnDefault {
			sources = append(sources, list[i].ToSource)
		}
	}
	slices.SortFunc(sources, netip.Addr.Compare)
	sources = slices.Compact(sources)
	marks := gatewayMarks(sources)
	foreignMarks := map[netip.Addr]uint32{} // marks by address
	for n, a := range sources {
		g := netdev.Gateway{Addr: a, Mark: marks[n], Owned: lb.OwnsSource(a, instances)}
		if !g.Owned && isStatic(a) {
			g.Owned = true
			out.static = append(out.static, a)
		}
		out.gateways = append(out.gateways, g)
		if !g.Owned {
			foreignMarks[a] = g.Mark
		}
	}
	for i := range out.rules {
		r := &out.rules[i]
		if mark, foreign := foreignMarks[r.ToSource]; foreign && r.Action == policy.RuleSNAT && r.OnDefault {
			r.RuleVerdict = policy.RuleVerdict{Action: policy.RuleAllow, Mark: mark, Record: r.Record}
		}
	}
	return out
}

// setGateways sets the gateways, and returns the errors of rules that need them, by key.
func (r *Rules) setGateways(rules []policy.Rule, egress *egressRules) map[string]error {
	r.mu.Lock()
	r.gatewaysUsed = r.gatewayLinks() // before Set, so a change meanwhile is noticed
	r.mu.Unlock()
	failed, all := r.gateways.Set(egress.gateways)
	errs := map[string]error{}
	for i := range rules {
		if one := &rules[i]; one.Action == policy.RuleSNAT && one.OnDefault {
			err := cmp.Or(failed[one.ToSource], all)
			if err == nil && slices.Contains(egress.static, one.ToSource) {
				err = errStatic
			}
			if err != nil {
				err = fmt.Errorf("egress gateway %s: %w", one.ToSource, err)
			}
			errs[one.Key()] = err
		}
	}
	return errs
}

// gatewayMarks returns a mark for each address. A mark depends on its address alone. If a new
// address shifted the marks of others, packets would take the wrong tunnel until both rules and
// tunnels have the new marks.
func gatewayMarks(sources []netip.Addr) []uint32 {
	marks, used := make([]uint32, len(sources)), make(map[uint32]bool, len(sources))
	for i, a := range sources {
		h := fnv.New32a()
		h.Write(a.AsSlice()) // never fails
		n := h.Sum32() % netdev.GatewayMarks
		for used[n] && len(used) < netdev.GatewayMarks {
			n = (n + 1) % netdev.GatewayMarks
		}
		used[n], marks[i] = true, netdev.FirstGatewayMark+n
	}
	return marks
}

// servicesOfOthers returns the services of connections that other nodes translate.
func (e *egressRules) servicesOfOthers() (list []string) {
	for _, g := range e.gateways {
		if !g.Owned {
			list = append(list, report.SourceName(g.Addr))
		}
	}
	return list
}

// ownedSources returns those source addresses that this node owns.
func ownedSources(sources []netip.Addr, instances map[string]lb.Instance) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(sources), func(a netip.Addr) bool { return !lb.OwnsSource(a, instances) })
}
