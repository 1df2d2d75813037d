package traffic

import (
	"testing"

	v1 "loxilb/api/v1"
)

// TestPolicyFlags checks that the contract's flags give its request, that units can be used, and
// that errors name the wrong part.
func TestPolicyFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flags policyFlags
		want  v1.Policy
	}{
		{policyFlags{rate: "100:50", target: "hs0:1", block: "12000:6000", color: true}, v1.Policy{
			PolicyIdent:  "p",
			PolicyInfo:   v1.PolicyInfo{ColorAware: true, PeakInfoRate: 100, CommittedInfoRate: 50, ExcessBlkSize: 12000, CommittedBlkSize: 6000},
			TargetObject: v1.PolicyTarget{Attachment: 1, PolObjName: "hs0"},
		}},
		{policyFlags{rate: "x:10kbit", target: "[2001:db8::1]:80/tcp:service", kind: "1", direction: "both"}, v1.Policy{
			PolicyIdent:  "p",
			PolicyInfo:   v1.PolicyInfo{Type: 1, CommittedInfoRate: 0.01, CommittedRate: "10kbit"},
			TargetObject: v1.PolicyTarget{Attachment: 2, PolObjName: "[2001:db8::1]:80/tcp", Direction: "both"},
		}},
		{policyFlags{rate: "2kpps:1kpps", target: "2001:db8::/32:3"}, v1.Policy{
			PolicyIdent:  "p",
			PolicyInfo:   v1.PolicyInfo{PeakRate: "2kpps", CommittedRate: "1kpps"},
			TargetObject: v1.PolicyTarget{Attachment: 3, PolObjName: "2001:db8::/32"},
		}},
		{policyFlags{rate: "2:1", target: "sourceIP:2001:db8::/32,preference:5:firewall"}, v1.Policy{
			PolicyIdent:  "p",
			PolicyInfo:   v1.PolicyInfo{PeakInfoRate: 2, CommittedInfoRate: 1},
			TargetObject: v1.PolicyTarget{Attachment: 4, PolObjName: "sourceIP:2001:db8::/32,preference:5"},
		}},
	} {
		got, err := c.flags.request("p")
		if err != nil || got != c.want {
			t.Errorf("%+v becomes %+v, %v; want %+v", c.flags, got, err, c.want)
		}
	}
	for _, f := range []policyFlags{
		{rate: "100", target: "hs0:1"}, {rate: "100:x", target: "hs0:1"}, {rate: "x:100", target: "hs0:1"}, {rate: "1:1", target: "hs0"},
		{rate: "1:1", target: "hs0:9"}, {rate: "1:1", target: "hs0:1", block: "12"}, {rate: "1:1", target: "hs0:1", block: "1:-1"},
	} {
		if got, err := f.request("p"); err == nil {
			t.Errorf("%+v becomes %+v", f, got)
		}
	}
}
