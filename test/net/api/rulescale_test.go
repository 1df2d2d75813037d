package api_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb/policy"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/ruletest"
)

// TestRulesScale checks that the maximum number of firewall rules takes effect soon after the
// request. The rules have the patterns that take longest to compile. An additional rule takes less
// time, and so does a start with all rules.
func TestRulesScale(t *testing.T) {
	rig.Long(t)
	rng := rand.New(rand.NewPCG(1, 2))
	const own = 2 // rules of the test
	sets := ruletest.Sets(policy.MaxRules-own, rng)
	maps.Copy(sets, ruletest.Hostile(policy.MaxRules-own, rng))
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		t.Run(name, func(t *testing.T) {
			for i := range sets[name] {
				sets[name][i].Preference = min(sets[name][i].Preference, 65533)
			}
			r := rig.New(t, rig.Options{})
			r.ServeSource(r.LB, ":7100", ":7100")
			a := newAPI(r)
			const client, here = "100.100.100.1", "100.100.100.254:7100"
			a.rule(t, policy.Rule{Source: netip.MustParsePrefix(client + "/32"), Preference: 65534})
			idle := peakMemory(r)
			var took, used [3]time.Duration // of all rules, of one more, of a start
			measure := func(i int, f func()) {
				start, cpu := time.Now(), processorTime(t, r)
				f()
				took[i], used[i] = time.Since(start), processorTime(t, r)-cpu
			}
			body := encode(t, v1.FirewallRequest{FwAttr: entriesOf(sets[name])})
			measure(0, func() { a.call("POST", "config/firewall?force=true", body) })
			more := peakMemory(r) - idle
			r.WantSource(r.Client, "tcp", here, client)
			measure(1, func() {
				a.rule(t, policy.Rule{
					Source: netip.MustParsePrefix(client + "/32"), DestinationPorts: policy.RulePorts{Min: 7100, Max: 7100}, Protocol: 6, Preference: 65535,
					RuleVerdict: policy.RuleVerdict{Action: policy.RuleDrop},
				})
			})
			if c, err := dialShortly(t, r.Client, here); err == nil {
				c()
				t.Error("the additional rule has no effect when its request is answered")
			}
			r.Stop()
			start := time.Now()
			r.Restart()
			took[2], used[2] = time.Since(start), processorTime(t, r)
			if c, err := dialShortly(t, r.Client, here); err == nil {
				c()
				t.Error("the additional rule has no effect after a start")
			}
			t.Logf("%d rules took %v, %v of CPU and %d MB; one more %v, %v of CPU; a start %v, %v of CPU; a packet looks at %v nodes and %v rules at most",
				len(sets[name])+1, took[0].Round(time.Millisecond), used[0], more>>10, took[1].Round(time.Millisecond), used[1],
				took[2].Round(time.Millisecond), used[2], r.Metric("fw_search_nodes"), r.Metric("fw_compared_rules"))
			if more > 300<<10 {
				t.Errorf("the rules take %d MB", more>>10)
			}
			// CPU time, as other tests may run at the same time
			if used[0] > 2*time.Second || used[1] > 300*time.Millisecond || used[2] > 2*time.Second {
				t.Error("the change takes too long")
			}
		})
	}
}

// rule creates a rule.
func (a *api) rule(t *testing.T, rule policy.Rule) {
	t.Helper()
	e := entriesOf([]policy.Rule{rule.Normal()})[0]
	a.call("POST", "config/firewall?force=true", encode(t, v1.FirewallRequest{RuleArguments: e.RuleArguments, Opts: e.Opts}))
}

func dialShortly(t *testing.T, h *netnstest.Host, address string) (hangUp func(), err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
	defer cancel()
	c, err := h.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return func() { _ = c.Close() }, nil
}

// entriesOf converts rules to the API's type.
func entriesOf(rules []policy.Rule) []v1.FirewallRule {
	out := make([]v1.FirewallRule, len(rules))
	text := func(p netip.Prefix) string {
		if !p.IsValid() {
			return ""
		}
		return p.String()
	}
	for i := range rules {
		r := &rules[i]
		out[i].RuleArguments = v1.FirewallArguments{
			SourceIP: text(r.Source), DestinationIP: text(r.Destination), MinSourcePort: int(r.SourcePorts.Min), MaxSourcePort: int(r.SourcePorts.Max),
			MinDestinationPort: int(r.DestinationPorts.Min), MaxDestinationPort: int(r.DestinationPorts.Max), Protocol: int(r.Protocol),
			MaxProtocol: int(r.ProtocolMax), PortName: r.Interface, Preference: int(r.Preference),
		}
		out[i].Opts = v1.FirewallOptions{Allow: r.Action == policy.RuleAllow, Drop: r.Action == policy.RuleDrop, Trap: r.Action == policy.RuleTrap}
	}
	return out
}

// peakMemory returns the daemon's peak memory in KiB.
func peakMemory(r *rig.Rig) int {
	r.T.Helper()
	n, err := strconv.Atoi(strings.TrimSuffix(memoryOf(r, "VmHWM"), " kB"))
	if err != nil {
		r.T.Fatal(err)
	}
	return n
}

// processorTime returns the CPU time that the daemon has used.
func processorTime(t testing.TB, r *rig.Rig) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, err1 := strconv.Atoi(f[11])
	system, err2 := strconv.Atoi(f[12])
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}
