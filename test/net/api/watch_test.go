package api_test

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// TestWatchConnections checks that a watch prints a connection from its first packet to its end,
// with its counters and the side that closed it.
func TestWatchConnections(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	rig.ServeSources(r)
	r.Loxicmd("create lb %s --tcp=80:7000 --endpoints=31.31.31.1:1", rig.VIP4)
	watch, err := r.LB.Start(netnstest.Command{Args: []string{
		rig.Program("loxicmd"), "get", "ct", "-w", "--vip=" + rig.VIP4,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Stop)
	seen := func(pattern string) error {
		if out := watch.Output(); !regexp.MustCompile(pattern).MatchString(out) {
			return fmt.Errorf("no %s:\n%s", pattern, out)
		}
		return nil
	}
	// The start of the stream is not visible: open connections until one is printed.
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		c := r.Dial(rig.Join(rig.VIP4, 80))
		if _, err := rig.AskSource(c); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		return seen(`closing  tcp`)
	})
	r.Loxicmd("delete lb %s --tcp=80", rig.VIP4)
	const connection = `tcp   100\.100\.100\.1:\d+ > 20\.20\.20\.1:80  31\.31\.31\.1:7000  20\.20\.20\.1:80/tcp`
	for _, pattern := range []string{
		`opened   ` + connection + "\n", `assured  ` + connection + "\n", `closing  ` + connection + " by client\n",
		`ended    ` + connection + `  closed by both  in [4-9] packets, [2-9]\d\d bytes  out [3-9] packets, [1-9]\d\d bytes` + "\n",
	} {
		// closed connections of a deleted service stay in the table for up to 10 s
		labtest.Eventually(t, 2*rig.Patience, func(context.Context) error { return seen(pattern) })
	}
}
