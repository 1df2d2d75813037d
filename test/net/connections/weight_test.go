package connections_test

import (
	"context"
	"fmt"
	"net"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// P35 Setting a weight affects new connections of the named services only
func TestSetWeight(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	serveCountedEcho(r)
	var all []*net.TCPConn
	for port, name := range map[int]string{80: "a", 81: "b"} {
		r.Loxicmd("create lb %s --tcp=%d:7 --endpoints=%s --select=priority --name=%s", rig.VIP4, port, rig.Endpoints4(), name)
		all = append(all, openConnections(r, rig.Join(rig.VIP4, port), 9)...)
	}
	stop := keepUsing(t, all)
	took := func(port, n int) int {
		t.Helper()
		here, _ := splitByEndpoint(r, "31.31.31.1", openConnections(r, rig.Join(rig.VIP4, port), n))
		return len(here)
	}
	r.Loxicmd("set endpoint 31.31.31.1:7 --weight=4 --servName=a")
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if n, other := took(80, 18), took(81, 18); n != 12 || other != 6 {
			return fmt.Errorf("of 18 connections each, the endpoint has %d with weight 4 of 6, and %d with weight 1 of 3", n, other)
		}
		return nil
	})
	r.Loxicmd("set endpoint 31.31.31.1 --weight=0")
	for _, port := range []int{80, 81} {
		if n := took(port, 9); n != 0 {
			t.Errorf("port %d: of 9 connections the endpoint of weight 0 has %d", port, n)
		}
	}
	stop()
}
