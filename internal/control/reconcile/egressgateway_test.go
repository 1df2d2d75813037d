package reconcile

import (
	"errors"
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
	nowhere := netip.Addr{}
	for name, c := range map[string]struct {
		instances   map[string]lb.Instance
		static      netip.Addr
		own, named  bool
		first, then policy.Rule
	}{
		"no roles":       {nil, nowhere, true, true, rules[0], rules[1]},
		"backup":         {map[string]lb.Instance{lb.DefaultInstance: backup}, nowhere, false, false, marked(marks[1]), marked(marks[0])},
		"named instance": {map[string]lb.Instance{lb.DefaultInstance: backup, "e": {Name: "e", Role: lb.RoleMaster, VIP: named}}, nowhere, false, true, rules[0], marked(marks[0])},
		"static address": {map[string]lb.Instance{lb.DefaultInstance: backup}, own, true, false, marked(marks[1]), rules[1]},
	} {
		got := egressOf(rules, c.instances, func(a netip.Addr) bool { return a == c.static })
		if static := got.static; (len(static) > 0) != c.static.IsValid() || len(static) > 0 && static[0] != c.static {
			t.Errorf("%s: static %v", name, static)
		}
		got.static = nil
		want := egressRules{
			rules:    []policy.Rule{c.first, c.then, rules[2], rules[3]},
			gateways: []netdev.Gateway{{Addr: own, Mark: marks[0], Owned: c.own}, {Addr: named, Mark: marks[1], Owned: c.named}},
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(egressRules{}, netdev.Gateway{}),
			cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
			cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// TestGatewayMarks checks that marks are distinct, stay within their mask, and do not change when
// another address is added or removed.
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

// brokenGateways cannot make the tunnel to one address.
type brokenGateways struct{ broken netip.Addr }

func (b brokenGateways) Set([]netdev.Gateway) (map[netip.Addr]error, error) {
	return map[netip.Addr]error{b.broken: errors.New("no tunnel")}, nil
}

func (brokenGateways) Uses(link string) bool { return link == "eth0" }
func (brokenGateways) RulesMissing() bool    { return false }

// TestGatewayFails checks that a failing gateway fails only its own rules, whichever rule is due,
// and that rules are applied again after a change of an interface that gateways use.
func TestGatewayFails(t *testing.T) {
	t.Parallel()
	r := newRuleRig(t)
	r.gateways = brokenGateways{netip.MustParseAddr("192.0.2.40")}
	if err := r.apply(t.Context(), "sourceIP:10.0.0.0/8 snat=192.0.2.40 default", "sourceIP:11.0.0.0/8 snat=192.0.2.41 default", "sourceIP:12.0.0.0/8 allow"); err != nil {
		t.Errorf("a rule without a gateway: %v", err)
	}
	failed := map[string]bool{}
	for _, o := range r.Apply(t.Context(), []string{"sourceIP:12.0.0.0/8"}) {
		failed[o.Key] = o.Err != nil
	}
	want := map[string]bool{"sourceIP:10.0.0.0/8": true, "sourceIP:11.0.0.0/8": false, "sourceIP:12.0.0.0/8": false}
	if d := cmp.Diff(want, failed); d != "" {
		t.Error("which rules fail: ", d)
	}
	due := func() int {
		r.Loop.mu.Lock()
		defer r.Loop.mu.Unlock()
		n := len(r.dirty)
		clear(r.dirty)
		return n
	}
	for _, step := range []struct {
		links []netdev.Link
		want  int
	}{{nil, 0}, {[]netdev.Link{{Name: "eth1", Index: 2}}, 0}, {[]netdev.Link{{Name: "eth0", Index: 3}}, 1}} {
		r.links = step.links
		r.LinksChanged()
		if n := due(); n != step.want {
			t.Errorf("%d rules are due with %v, want %d", n, step.links, step.want)
		}
	}
}
