package kinds

import (
	v1 "loxilb/api/v1"
	"loxilb/internal/lb/policy"
)

// RuleName is the name of the kind in messages and journals.
const RuleName = "firewall"

// Rule registers firewall rules.
func Rule() *Kind[policy.Rule, v1.FirewallRule] {
	return &Kind[policy.Rule, v1.FirewallRule]{
		Words: Words{
			Name: RuleName, Document: RuleDocument, Command: "firewall", Aliases: []string{"fw", "firewalls", "Firewall"},
			List: "fwAttr", Exported: true, Verified: true,
		},
		Stored: Stored[policy.Rule]{
			Key:      policy.Rule.Key,
			Equal:    func(a, b policy.Rule) bool { return a == b },
			Validate: policy.Rule.Validate,
			Format:   2, // adds recording
			Encode: func(r policy.Rule) (int, []byte, error) {
				b, err := r.MarshalRecord()
				if r.Record {
					return 2, b, err
				}
				return 1, b, err
			},
			Decode: func(_ int, object []byte) (policy.Rule, error) { return policy.UnmarshalRule(object) },
			Max:    policy.MaxRules,
			Plural: "firewall rules",
			Shared: true,
		},
	}
}
