package kinds

import (
	v1 "loxilb/api/v1"
	"loxilb/internal/lb/policy"
)

// Policer registers policers.
func Policer() Kind[policy.Policer, v1.Policy] {
	words := Words{
		Name: "policer", Document: PolicerDocument, Command: "policy", Aliases: []string{"pol", "policys", "pols", "polices"},
		List: "polAttr", Exported: true, Verified: true,
	}
	stored := asJSON(func(p policy.Policer) string { return p.Name }, policy.Policer.Validate)
	stored.Most = 8192 // as in the contract
	return Kind[policy.Policer, v1.Policy]{
		Words:  words,
		Stored: attached(stored, words.Name, func(p policy.Policer) policy.Attachment { return p.Attachment }),
	}
}
