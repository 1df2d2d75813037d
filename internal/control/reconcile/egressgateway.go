package reconcile

import (
	"net/netip"
	"slices"

	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

// Gateways lead packets to the node that owns the source address of their rule: an
// *egress.Gateways. Nil: each node translates them itself.
type Gateways interface {
	Set([]netdev.Gateway) error
}

// egressRules are the rules of one node of a cluster.
type egressRules struct {
	rules    []policy.Rule
	gateways []netdev.Gateway // sorted by address
}

// firstGatewayMark begins the marks of packets for gateways. Bits 14 and 15 are kube-proxy's.
const firstGatewayMark = 0x1b0000

// egressOf returns the rules as this node applies them, given the roles of its instances. A rule
// for default routes whose source address belongs to another node marks packets instead of
// translating them.
func egressOf(list []policy.Rule, instances map[string]lb.Instance) egressRules {
	out := egressRules{rules: slices.Clone(list)}
	var sources []netip.Addr
	for i := range list {
		if list[i].Action == policy.RuleSNAT && list[i].OnDefault {
			sources = append(sources, list[i].ToSource)
		}
	}
	slices.SortFunc(sources, netip.Addr.Compare)
	for n, a := range slices.Compact(sources) {
		out.gateways = append(out.gateways, netdev.Gateway{Addr: a, Mark: firstGatewayMark + 1 + uint32(n), Owned: ownsSource(a, instances)})
	}
	for i := range out.rules {
		r := &out.rules[i]
		n := slices.IndexFunc(out.gateways, func(g netdev.Gateway) bool { return g.Addr == r.ToSource })
		if r.Action == policy.RuleSNAT && r.OnDefault && !out.gateways[n].Owned {
			r.RuleVerdict = policy.RuleVerdict{Action: policy.RuleAllow, Mark: out.gateways[n].Mark, Record: r.Record}
		}
	}
	return out
}

// elsewhere returns the services of connections that other nodes translate.
func (e *egressRules) elsewhere() (list []string) {
	for _, g := range e.gateways {
		if !g.Owned {
			list = append(list, report.SourceName(g.Addr))
		}
	}
	return list
}

// ownsSource reports whether this node owns a source address of rules: it has the role of the
// instance with that VIP, otherwise of the default one.
func ownsSource(a netip.Addr, instances map[string]lb.Instance) bool {
	for _, one := range instances {
		if one.VIP == a {
			return one.Role.Owns()
		}
	}
	return instances[lb.DefaultInstance].Role.Owns()
}

// ownedSources returns the source addresses of rules that this node owns.
func ownedSources(sources []netip.Addr, instances map[string]lb.Instance) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(sources), func(a netip.Addr) bool { return !ownsSource(a, instances) })
}
