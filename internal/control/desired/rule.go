package desired

import (
	"fmt"

	"loxilb/internal/control/store"
	"loxilb/internal/lb/policy"
)

// RuleKind is the name of the kind, as messages and journals have it: a firewall rule.
const RuleKind = "firewall"

// Rules is the table of firewall rules.
type Rules struct {
	*store.Table[policy.Rule]
}

func newRules() *Rules {
	r := &Rules{}
	r.Table = store.NewTable(store.Kind[policy.Rule]{
		Name:     RuleKind,
		Key:      policy.Rule.Key,
		Equal:    func(a, b policy.Rule) bool { return a == b },
		Validate: policy.Rule.Validate,
		Format:   2, // that they record
		Encode: func(r policy.Rule) (int, []byte, error) {
			b, err := r.MarshalRecord()
			if r.Record {
				return 2, b, err
			}
			return 1, b, err
		},
		Decode: func(_ int, object []byte) (policy.Rule, error) { return policy.UnmarshalRule(object) },
		Check: func(before, after *store.Snapshot, _ []store.ID) error {
			if n := r.Len(after); n > policy.MaxRules && n > r.Len(before) {
				return fmt.Errorf("a total of %d firewall rules %w of %d", n, store.ErrLimit, policy.MaxRules)
			}
			return nil
		},
	})
	return r
}
