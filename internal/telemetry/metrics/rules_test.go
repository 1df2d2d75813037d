package metrics

import (
	"net/netip"
	"strings"
	"testing"

	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
)

// TestRulesBounded checks that only 1,000 rules have series: those of the highest preference.
func TestRulesBounded(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, fake{}, Options{})
	_, _, err := m.store.Commit("test", func(tx *store.Tx) error {
		for i := range uint16(maxRules + 500) {
			if err := m.store.Rules.Put(tx, policy.Rule{Preference: 100 + i, RuleVerdict: policy.RuleVerdict{Action: policy.RuleDrop}}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got := scrape(t, m)
	if n := strings.Count(got, "\nloxilb_fw_rule_packets_total{"); n != maxRules {
		t.Errorf("%d rules have series", n)
	}
	for text, want := range map[string]bool{
		`rule="preference:1599",action="drop"} 1602`: true, `rule="preference:600"`: true, `rule="preference:599"`: false,
		"loxilb_fw_rules 1503\n": true,
	} {
		if strings.Contains(got, text) != want {
			t.Errorf("%s: %v, want %v", text, !want, want)
		}
	}
}

// TestOwnedSources checks that source addresses of rules have owners, by the role of their
// instance.
func TestOwnedSources(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, fake{}, Options{})
	_, _, err := m.store.Commit("test", func(tx *store.Tx) error {
		for i, source := range []string{"192.0.2.1", "20.20.20.9"} { // the second one is a BACKUP's
			v := policy.RuleVerdict{Action: policy.RuleSNAT, ToSource: netip.MustParseAddr(source)}
			if err := m.store.Rules.Put(tx, policy.Rule{Preference: uint16(10 + i), RuleVerdict: v}); err != nil {
				return err
			}
		}
		return m.store.Instances.Put(tx, lb.Instance{Name: "llb-inst0", Role: lb.RoleMaster})
	})
	if err != nil {
		t.Fatal(err)
	}
	got := scrape(t, m)
	for _, want := range []string{`loxilb_vip_owner{vip="192.0.2.1"} 1`, `loxilb_vip_owner{vip="20.20.20.9"} 0`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing", want)
		}
	}
}
