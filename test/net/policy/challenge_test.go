package policy_test

import (
	"testing"
	"time"

	"loxilb/test/net/rig"
)

// TestSynProtectAlways checks, in every mode and over both IP versions, that an unknown client
// connects after a challenge, and without a challenge afterwards.
func TestSynProtectAlways(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"default", "onearm", "fullnat", "dsr"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			o, endpoint := rig.Options{}, 5001
			if mode == "dsr" {
				o.Before, endpoint = rig.ConfigureDirectReturn, 7000
			}
			r := rig.New(t, o)
			if mode == "dsr" {
				rig.ServeSourcesAt(r, rig.VIP4, rig.VIP6)
			} else {
				r.ServeNames()
			}
			port := map[bool]int{true: 7000, false: 2020}[mode == "dsr"]
			r.Loxicmd("create lb %s --tcp=%d:%d --mode=%s --syn-protect=always --endpoints=%s", rig.VIP4, port, endpoint, mode, rig.Endpoints4())
			r.Loxicmd("create lb %s --tcp=%d:%d --mode=%s --syn-protect=always --endpoints=%s", rig.VIP6, port, endpoint, mode, rig.Endpoints6())
			for i, vip := range []string{rig.VIP4, rig.VIP6} {
				began := time.Now()
				r.Dial(rig.Join(vip, port))
				took := time.Since(began)
				t.Logf("%s: the first connection took %v", vip, took)
				if took > 1500*time.Millisecond {
					t.Errorf("%s: the first connection took %v", vip, took)
				}
				challenged := r.Metric("syn_challenges_total")
				for range 5 {
					r.Dial(rig.Join(vip, port))
				}
				if n := r.Metric("syn_challenges_total"); n != challenged {
					t.Errorf("%s: a known client was challenged %v times", vip, n-challenged)
				}
				if answered, known := r.Metric("syn_challenges_answered_total"), r.Metric("known_clients"); answered != float64(i+1) || known != float64(i+1) {
					t.Errorf("%s: %v challenges answered, %v clients known, want %d", vip, answered, known, i+1)
				}
			}
		})
	}
}
