package metrics

import (
	"slices"

	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

// maxRules bounds the firewall rules with their own series: the first ones, in the order of
// evaluation. GET config/firewall/all has all.
const maxRules = 1000

func ruleFamilies() []family {
	of := []string{"rule", "action"}
	return []family{
		number("loxilb_fw_rules", Gauge, "Firewall rules.", countRules),
		number("loxilb_fw_compared_rules", Gauge, "Rules that one packet is compared with, at most.",
			func(v *view) float64 { return float64(v.src.RuleCost().Rules) }),
		number("loxilb_fw_search_nodes", Gauge, "Search tree nodes that one packet passes, at most.",
			func(v *view) float64 { return float64(v.src.RuleCost().Nodes) }),
		{Metric{"loxilb_fw_rule_packets_total", Counter, of, "Packets that the firewall rule has decided about; of the first 1,000 rules.", Always},
			ofRules(func(r *policy.Rule, hits report.Traffic, p *page) {
				p.add(float64(hits.Packets), r.Key(), r.Action.String())
			})},
		{Metric{"loxilb_fw_rule_bytes_total", Counter, of, "Bytes of the packets that the firewall rule has decided about; of the first 1,000 rules.", Always},
			ofRules(func(r *policy.Rule, hits report.Traffic, p *page) {
				p.add(float64(hits.Bytes), r.Key(), r.Action.String())
			})},
	}
}

func countRules(v *view) float64 { return float64(v.store.Rules.Len(v.snap)) }

// ofRules calls f for each rule that has series and that the data path has.
func ofRules(f func(r *policy.Rule, hits report.Traffic, p *page)) func(*view, *page) {
	return func(v *view, p *page) {
		list := slices.Collect(v.store.Rules.All(v.snap))
		slices.SortFunc(list, func(a, b policy.Rule) int { return policy.CompareRules(&a, &b) })
		for i := range list[:min(len(list), maxRules)] {
			if hits, known := v.src.RuleHits(&list[i]); known {
				f(&list[i], hits, p)
			}
		}
	}
}

// addDropped adds the packets that a rule has dropped, if dropping is its action.
func addDropped(r *policy.Rule, hits report.Traffic, p *page) {
	if r.Action == policy.RuleDrop {
		p.add(float64(hits.Packets), r.Key())
	}
}
