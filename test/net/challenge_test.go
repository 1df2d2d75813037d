package net_test

import (
	"testing"
	"time"
)

// TestSynProtectAlways: a client that is not known connects as soon as it has answered a challenge, in every mode and
// over both IP versions, and from then on at once.
func TestSynProtectAlways(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"default", "onearm", "fullnat", "dsr"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			o, endpoint := options{}, 5001
			if mode == "dsr" {
				o.before, endpoint = directReturn, 7000
			}
			r := newRig(t, o)
			if mode == "dsr" {
				serveAt(r, vip4, vip6)
			} else {
				r.serveNames()
			}
			port := map[bool]int{true: 7000, false: 2020}[mode == "dsr"]
			r.loxicmd("create lb %s --tcp=%d:%d --mode=%s --syn-protect=always --endpoints=%s", vip4, port, endpoint, mode, endpoints4())
			r.loxicmd("create lb %s --tcp=%d:%d --mode=%s --syn-protect=always --endpoints=%s", vip6, port, endpoint, mode, endpoints6())
			for i, vip := range []string{vip4, vip6} {
				began := time.Now()
				r.dial(join(vip, port))
				took := time.Since(began)
				t.Logf("%s: the first connection took %v", vip, took)
				if took > 1500*time.Millisecond {
					t.Errorf("%s: the first connection took %v", vip, took)
				}
				challenged := r.metric("syn_challenges_total")
				for range 5 {
					r.dial(join(vip, port))
				}
				if n := r.metric("syn_challenges_total"); n != challenged {
					t.Errorf("%s: a client that is known was challenged %v times", vip, n-challenged)
				}
				if answered, known := r.metric("syn_challenges_answered_total"), r.metric("known_clients"); answered != float64(i+1) || known != float64(i+1) {
					t.Errorf("%s: %v challenges answered, %v clients known, want %d", vip, answered, known, i+1)
				}
			}
		})
	}
}
