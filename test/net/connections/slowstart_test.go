package connections_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// P42 A returning endpoint at first gets a tenth of its share of new connections, and all of it
// after the configured time, also across a restart; open connections are not affected
func TestSlowStart(t *testing.T) {
	t.Parallel()
	const slow = 12 * time.Second
	r := rig.Shared(t)
	serveCountedEcho(r)
	r.Loxicmd("create lb %s --tcp=80:7 --endpoints=%s --slow-start=%v", rig.VIP4, rig.Endpoints4(), slow)
	stop := keepUsing(t, openConnections(r, rig.Join(rig.VIP4, 80), 9))
	share := func(n int) int {
		t.Helper()
		all := openConnections(r, rig.Join(rig.VIP4, 80), n)
		here, _ := splitByEndpoint(r, "31.31.31.1", all)
		for _, c := range all { // polled often, and open files are limited
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		return len(here)
	}
	if n := share(9); n != 3 {
		t.Errorf("of 9 connections of a new service the endpoint has %d, want 3", n)
	}
	r.Loxicmd("drain endpoint 31.31.31.1")
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if n := share(3); n != 0 {
			return fmt.Errorf("of 3 connections the drained endpoint has %d", n)
		}
		return nil
	})
	r.Loxicmd("undrain endpoint 31.31.31.1")
	start := time.Now()
	// atMost also holds on a busy machine: it computes the limit from the time that has passed.
	atMost := func(when string) {
		t.Helper()
		n, grown := share(21), min(1, max(0.1, time.Since(start).Seconds()/slow.Seconds()))
		if most := int(21*grown/(2+grown)) + 2; n > most {
			t.Errorf("%s: of 21 connections the endpoint has %d %v after it came back, want %d at most", when, n, time.Since(start), most)
		}
	}
	atMost("at once")
	r.Kill()
	r.Restart()
	atMost("after a restart")
	labtest.Eventually(t, slow+rig.Patience, func(context.Context) error {
		for _, n := range []int{9, 45} { // most attempts fail at 9, which takes less time
			if got := share(n); got != n/3 {
				return fmt.Errorf("of %d connections the endpoint has %d", n, got)
			}
		}
		return nil
	})
	if took := time.Since(start); took < slow*3/4 {
		t.Errorf("the endpoint has all of its share %v after it came back", took)
	}
	stop()
}
