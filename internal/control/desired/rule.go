package desired

import (
	"fmt"

	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// RuleKind is the name of the kind, as messages and journals have it: a firewall rule.
const RuleKind = "firewall"

// Rules is the table of firewall rules.
type Rules struct {
	*store.Table[lb.Rule]
}

func newRules() *Rules {
	r := &Rules{}
	r.Table = store.NewTable(store.Kind[lb.Rule]{
		Name:     RuleKind,
		Key:      lb.Rule.Key,
		Equal:    func(a, b lb.Rule) bool { return a == b },
		Validate: lb.Rule.Validate,
		Format:   2, // that they record
		Encode: func(r lb.Rule) (int, []byte, error) {
			b, err := r.MarshalRecord()
			if r.Record {
				return 2, b, err
			}
			return 1, b, err
		},
		Decode: func(_ int, object []byte) (lb.Rule, error) { return lb.UnmarshalRule(object) },
		Check: func(before, after *store.Snapshot, _ []store.ID) error {
			if n := r.Len(after); n > lb.MaxRules && n > r.Len(before) {
				return fmt.Errorf("a total of %d firewall rules %w of %d", n, store.ErrLimit, lb.MaxRules)
			}
			return nil
		},
	})
	return r
}
