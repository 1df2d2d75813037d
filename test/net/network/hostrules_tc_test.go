package network_test

import (
	"strings"
	"testing"

	"loxilb/test/dptest"
	"loxilb/test/net/rig"
)

// dropFilter is a tc filter that drops all packets: a program of classic BPF that returns
// TC_ACT_SHOT. All supported kernels have cls_bpf, but not matchall.
const dropFilter = "handle 9 bpf da bytecode '1,6 0 0 2'"

// TestHostRulesTC checks that other tc filters at egress apply, before and after loxilb's. At
// ingress, only filters before loxilb's apply: with clsact, a newer filter of the same priority;
// with tcx, none.
func TestHostRulesTC(t *testing.T) {
	t.Parallel()
	for _, attach := range []string{"tcx", "clsact"} {
		t.Run(attach, func(t *testing.T) {
			t.Parallel()
			if attach == "tcx" && !dptest.HasTCX() {
				t.Log("this kernel has only clsact")
				return
			}
			r := rig.New(t, rig.Options{Args: []string{"--redirect-peer=false", "--attach=" + attach}})
			r.ServeNames()
			r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=31.31.31.1:1", rig.VIP4)
			for _, row := range []hostRule{
				tcRule("client ingress", "99", false),
				tcRule("client ingress", "1", attach == "clsact"),
				tcRule("ep1 egress", "99", true),
				tcRule("ep1 egress", "1", true),
			} {
				row.check(t, r, rig.Join(rig.VIP4, 80))
			}
		})
	}
}

// tcRule returns a filter that drops all packets at an interface's hook.
func tcRule(hook, priority string, applies bool) hostRule {
	device, _, _ := strings.Cut(hook, " ")
	return hostRule{
		name:      "tc filter of priority " + priority + " at " + hook,
		setUp:     "tc qdisc add dev " + device + " clsact 2>/dev/null || true; tc filter add dev " + hook + " prio " + priority + " " + dropFilter,
		remove:    "tc filter del dev " + hook + " prio " + priority + " handle 9 bpf",
		uncounted: applies,
	}
}
