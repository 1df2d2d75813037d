package compile

import (
	"fmt"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/policy"
)

// IPsec compiles the policies of the kernel's IPsec, in its order. The table is empty if none
// refuses anything.
func IPsec(list []policy.IPsecPolicy) (t bpf.RuleTable, err error) {
	if len(list) > policy.MaxRules {
		return t, fmt.Errorf("%d policies of IPsec are more than %d", len(list), policy.MaxRules)
	}
	refuses := false
	ipv6 := make([]bool, len(list))
	t.Rules = make([]bpf.TcRule, len(list))
	for i := range list {
		p := &list[i]
		t.Rules[i] = ipsecRule(p)
		refuses = refuses || p.Action != policy.IPsecAllow
		ipv6[i] = p.Destination.Addr().Is6()
	}
	if !refuses {
		return bpf.RuleTable{}, nil
	}
	_, err = buildTrees(&t, ipv6)
	return t, err
}

// ipsecRule returns a policy in the form of a firewall rule: the direction is in place of the
// interface.
func ipsecRule(p *policy.IPsecPolicy) bpf.TcRule {
	row := rule(&policy.Rule{
		Source: p.Source, Destination: p.Destination, SourcePorts: p.SourcePorts, DestinationPorts: p.DestinationPorts, Protocol: p.Protocol,
	}, nil)
	row.Identity = 0
	row.First[bpf.TcRuleWordRULE_INTERFACE], row.Span[bpf.TcRuleWordRULE_INTERFACE] = uint32(bpf.TcIpsecDirectionIPSEC_OUT), 0
	if p.Forward {
		row.First[bpf.TcRuleWordRULE_INTERFACE] = uint32(bpf.TcIpsecDirectionIPSEC_FORWARD)
	}
	switch p.Action {
	case policy.IPsecRefuse:
		row.Action = uint8(bpf.TcRuleActionRULE_DROP)
	case policy.IPsecDecrypt:
		row.Action = uint8(bpf.TcRuleActionRULE_TRAP)
	}
	return row
}
