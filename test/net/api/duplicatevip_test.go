package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// TestDuplicateVIP checks that the daemon reports another host that answers for a VIP, and keeps
// the VIP.
func TestDuplicateVIP(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	const vip4, vip6 = "100.100.100.200", "2001:db8:100::200"
	for _, a := range []string{vip4 + "/32", vip6 + "/128"} {
		if err := r.Client.AddAddress("eth0", rig.Prefix(a)); err != nil {
			t.Fatal(err)
		}
	}
	r.Loxicmd("create lb %s --tcp=80:8080 --endpoints=31.31.31.1:1 --force", vip4)
	r.Loxicmd("create lb %s --tcp=80:8080 --endpoints=[2001:db8:31::1]:1 --force", vip6)
	reported := func(want bool) {
		t.Helper()
		labtest.Eventually(t, 3*rig.Patience, func(context.Context) error {
			out, err := r.Command("get", "status", "--failed")
			for _, vip := range []string{vip4, vip6} {
				if strings.Contains(out, "answers for VIP "+vip) != want {
					return fmt.Errorf("%s is reported: %v, want %v (%w):\n%s", vip, !want, want, err, out)
				}
			}
			return nil
		})
	}
	reported(true)
	for _, a := range []string{vip4, vip6} {
		if !r.HasAddress(a) {
			t.Errorf("the balancer no longer has %s", a)
		}
	}
	for _, a := range []string{vip4 + "/32", vip6 + "/128"} {
		if err := r.Client.DelAddress("eth0", rig.Prefix(a)); err != nil {
			t.Fatal(err)
		}
	}
	reported(false)
}
