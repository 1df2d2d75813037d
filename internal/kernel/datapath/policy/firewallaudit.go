package policy

import (
	"fmt"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb/report"
)

// Audit compares the rules in force, and their attachments, with those written by this process;
// with repair, it writes differences again. It skips rules of an earlier process, which are unknown
// until SetRules.
func (f *Firewall) Audit(repair bool) []report.Compared {
	f.mu.Lock()
	defer f.mu.Unlock()
	rules := report.Compared{Table: "rule_sets", Rows: len(f.table.Rules)}
	variables := []rows.Variable{{Name: "rules_attached", In: f.shared.Variables.RulesAttached, Want: uint32(len(f.attached.rows))}}
	if f.known {
		if what, err := f.unequal(); err != nil {
			rules.Err = err
		} else if what != "" {
			rules.Differences = append(rules.Differences, report.Difference{Table: rules.Table, Row: "the set of firewall rules", What: what})
			if repair {
				rules.Err = f.write(&f.table, f.counters, f.sources)
			}
		}
		for _, v := range f.inForce.counts {
			variables = append(variables, rows.Variable{Name: "rule_count", In: v, Want: uint32(len(f.table.Rules))})
		}
	}
	attached := rows.Comparison[uint32, bpf.TcAttachments]{
		Table: "attached_rules", Map: f.shared.Maps.AttachedRules, Want: f.attached.rows, Name: rows.Numbered[uint32]("the rule with counter"),
	}
	return []report.Compared{rules, attached.Check(repair), rows.CheckVariables(repair, variables...)}
}

// unequal describes how the set in force differs from the written one; "": not at all.
func (f *Firewall) unequal() (string, error) {
	have, err := f.inForce.read()
	if err != nil {
		return "", fmt.Errorf("read firewall rules: %w", err)
	}
	if have == nil || len(f.table.Rules) == 0 {
		if (have == nil) != (len(f.table.Rules) == 0) {
			return "is missing, or should not be there", nil
		}
		return "", nil
	}
	want := f.set(&f.table, f.counters, f.sources)
	if have.Count != want.Count {
		return fmt.Sprintf("has %d rules, and should have %d", have.Count, want.Count), nil
	}
	for i := range want.Rules[:want.Count] {
		if have.Rules[i] != want.Rules[i] {
			return fmt.Sprintf("at place %d %s", i, rows.Unequal(have.Rules[i], want.Rules[i])), nil
		}
	}
	if *have != *want {
		return "has other trees", nil
	}
	return "", nil
}
