package lab

import (
	"fmt"
	"maps"
	"slices"

	"loxilb/internal/control/compile"
	"loxilb/internal/lb/policy"
)

// PutRule creates a firewall rule, or changes its action.
func (l *Lab) PutRule(r policy.Rule) error {
	l.rules[r.Key()] = r
	return l.setRules()
}

// DeleteRule deletes a firewall rule.
func (l *Lab) DeleteRule(r policy.Rule) error {
	if _, ok := l.rules[r.Key()]; !ok {
		return fmt.Errorf("unknown rule %s", r.Key())
	}
	delete(l.rules, r.Key())
	return l.setRules()
}

// SetRules replaces all firewall rules.
func (l *Lab) SetRules(list []policy.Rule) error {
	clear(l.rules)
	for _, r := range list {
		l.rules[r.Key()] = r
	}
	return l.setRules()
}

func (l *Lab) setRules() error {
	table, err := compile.Rules(slices.Collect(maps.Values(l.rules)), func(name string) (int, bool) {
		link, err := l.Link(name)
		if err != nil {
			return 0, false
		}
		return link.Index, true
	})
	if err != nil {
		return err
	}
	return l.Datapath.SetRules(table)
}

// DumpRules returns the rules as lines, in the order in which they apply, with their counters.
func (l *Lab) DumpRules() (lines []string) {
	list := slices.Collect(maps.Values(l.rules))
	slices.SortFunc(list, func(a, b policy.Rule) int { return policy.CompareRules(&a, &b) })
	for i := range list {
		hits, _ := l.Datapath.RuleHits(compile.RuleIdentity(&list[i]))
		lines = append(lines, fmt.Sprintf("%s packets=%d bytes=%d", &list[i], hits.Packets, hits.Bytes))
	}
	return lines
}
