package reconcile

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
)

// TestEgressOf checks which rules a node translates, and which packets it marks instead, given its
// roles.
func TestEgressOf(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr
	own, named := addr("192.0.2.40"), addr("192.0.2.41")
	marks := gatewayMarks([]netip.Addr{own, named})
	snat := func(a netip.Addr, onDefault bool) policy.Rule {
		return policy.Rule{RuleVerdict: policy.RuleVerdict{Action: policy.RuleSNAT, ToSource: a, OnDefault: onDefault, Record: true}}
	}
	marked := func(mark uint32) policy.Rule {
		return policy.Rule{RuleVerdict: policy.RuleVerdict{Action: policy.RuleAllow, Mark: mark, Record: true}}
	}
	rules := []policy.Rule{snat(named, true), snat(own, true), snat(own, false), {RuleVerdict: policy.RuleVerdict{Action: policy.RuleDrop}}}
	backup := lb.Instance{Name: lb.DefaultInstance, Role: lb.RoleBackup}
	for name, c := range map[string]struct {
		instances   map[string]lb.Instance
		own, named  bool
		first, then policy.Rule
	}{
		"no roles":       {nil, true, true, rules[0], rules[1]},
		"backup":         {map[string]lb.Instance{lb.DefaultInstance: backup}, false, false, marked(marks[1]), marked(marks[0])},
		"named instance": {map[string]lb.Instance{lb.DefaultInstance: backup, "e": {Name: "e", Role: lb.RoleMaster, VIP: named}}, false, true, rules[0], marked(marks[0])},
	} {
		got := egressOf(rules, c.instances)
		want := egressRules{
			rules:    []policy.Rule{c.first, c.then, rules[2], rules[3]},
			gateways: []netdev.Gateway{{Addr: own, Mark: marks[0], Owned: c.own}, {Addr: named, Mark: marks[1], Owned: c.named}},
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(egressRules{}, netdev.Gateway{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// TestGatewayMarks checks that marks are distinct, have no bits of others, and stay when another
// address begins or ends.
func TestGatewayMarks(t *testing.T) {
	t.Parallel()
	var all []netip.Addr
	for a := netip.MustParseAddr("192.0.2.0"); len(all) < 200; a = a.Next() {
		all = append(all, a)
	}
	marks, seen := gatewayMarks(all), map[uint32]bool{}
	for i, mark := range marks {
		if seen[mark] || mark&^netdev.GatewayMarkMask != 0 || mark < netdev.FirstGatewayMark {
			t.Errorf("%s has mark %#x", all[i], mark)
		}
		seen[mark] = true
	}
	if d := cmp.Diff(marks[1:], gatewayMarks(all[1:])); d != "" {
		t.Error("without the first address: ", d)
	}
}
