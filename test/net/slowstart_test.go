package net_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"loxilb/internal/netnstest/labtest"
)

// P42 an endpoint that comes back gets a tenth of its share of new connections at first, and all of it after the time that the service
// says, over a restart too; no connection notices
func TestSlowStart(t *testing.T) {
	t.Parallel()
	const slow = 12 * time.Second
	r := newRig(t, options{})
	r.serveEnds()
	r.loxicmd("create lb %s --tcp=80:7 --endpoints=%s --slow-start=%v", vip4, endpoints4(), slow)
	stop := busy(t, r.open(join(vip4, 80), 9))
	share := func(n int) int {
		t.Helper()
		all := r.open(join(vip4, 80), n)
		here, _ := r.at("31.31.31.1", all)
		for _, c := range all { // asked often, and files are few
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		return len(here)
	}
	if n := share(9); n != 3 {
		t.Errorf("of 9 connections of a new service it has %d, want 3", n)
	}
	r.loxicmd("drain endpoint 31.31.31.1")
	labtest.Eventually(t, patience, func(context.Context) error {
		if n := share(3); n != 0 {
			return fmt.Errorf("of 3 connections it has %d while it is drained", n)
		}
		return nil
	})
	r.loxicmd("undrain endpoint 31.31.31.1")
	start := time.Now()
	if n := share(21); n > 3 && time.Since(start) < slow/4 {
		t.Errorf("of 21 connections it has %d, %v after it came back", n, time.Since(start))
	}
	r.Kill()
	r.restart()
	if n := share(21); n > 5 && time.Since(start) < slow/2 {
		t.Errorf("of 21 connections it has %d, %v after it came back, and after a restart", n, time.Since(start))
	}
	labtest.Eventually(t, slow+patience, func(context.Context) error {
		if n := share(45); n != 15 {
			return fmt.Errorf("of 45 connections it has %d", n)
		}
		return nil
	})
	if took := time.Since(start); took < slow*3/4 {
		t.Errorf("it has all of its share %v after it came back", took)
	}
	stop()
}
