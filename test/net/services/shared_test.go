package services_test

import (
	"strings"
	"testing"

	"loxilb/test/net/rig"
)

// TestShared checks that a shared rig has no objects, connections, servers and logs of the previous
// test, and that a rig whose network has changed is not used again.
func TestShared(t *testing.T) {
	t.Parallel()
	const flag = "--half-open-max=31" // of no other test
	daemon := 0
	t.Run("first", func(t *testing.T) {
		r := rig.Shared(t, flag)
		daemon = r.Pid()
		r.ServeNames()
		r.ServeUDPEcho()
		r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4())
		r.Loxicmd("create lb %s --udp=53:5353 --endpoints=%s", rig.VIP4, rig.Endpoints4())
		r.Dial(rig.Join(rig.VIP4, 80))
		if _, err := rig.Datagram(rig.DialUDP(t, r, rig.Join(rig.VIP4, 53)), "hello"); err != nil {
			t.Error(err)
		}
		if n := r.Metric("connections_created_total"); n != 2 {
			t.Errorf("%v connections were created, want 2", n)
		}
	})
	t.Run("second", func(t *testing.T) {
		r := rig.Shared(t, flag)
		if r.Pid() != daemon {
			t.Error("the second test has another daemon")
		}
		if log := r.Log(); log != "" {
			t.Errorf("the log is not empty:\n%s", log)
		}
		if n := r.Metric("connections_created_total"); n != 0 {
			t.Errorf("%v connections were created", n)
		}
		if out := r.Loxicmd("get ct"); strings.Contains(out, "udp") || strings.Contains(out, "est") {
			t.Errorf("connections are left:\n%s", out)
		}
		r.WantNoAnswer(rig.Join(rig.VIP4, 80))
		r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4())
		r.WantNoAnswer(rig.Join(rig.VIP4, 80)) // no server
		if err := r.LB.AddAddress("lo", rig.Prefix("9.9.9.9/32")); err != nil {
			t.Error(err)
		}
	})
	t.Run("third", func(t *testing.T) {
		r := rig.Shared(t, flag)
		if r.Pid() == daemon {
			t.Error("a test got the daemon of a host with another address")
		}
	})
}
