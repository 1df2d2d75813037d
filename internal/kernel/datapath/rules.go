package datapath

import (
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

// SetRules replaces the firewall rules. Each connection is checked again with its next packet.
func (d *Datapath) SetRules(t bpf.RuleTable) error {
	sources, err := d.PutRuleSources(t.Sources)
	if err != nil {
		return err
	}
	err = d.firewall.SetRules(t, sources, d.BumpNextHops)
	if err != nil {
		return err
	}
	return d.TrimRuleSources(t.Sources)
}

// RuleHits returns the packets decided by the rule with an identity, and whether the data path has
// the rule.
func (d *Datapath) RuleHits(identity uint64) (report.Traffic, bool) {
	return d.firewall.RuleHits(identity)
}

// RuleCost returns the highest cost of finding a packet's rule.
func (d *Datapath) RuleCost() policy.RuleCost { return d.firewall.RuleCost() }

// RuleCount returns the number of firewall rules in force.
func (d *Datapath) RuleCount() int { return d.firewall.Count() }

// SetIPsec refuses connections that these policies of the kernel's IPsec block or encrypt. Each
// open connection is checked again with its next packet.
func (d *Datapath) SetIPsec(t bpf.RuleTable) error { return d.policies.SetIPsec(t, d.BumpNextHops) }
