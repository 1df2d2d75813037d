package connections_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// splitByEndpoint returns a service's connections to an endpoint, and all others.
func splitByEndpoint(r *rig.Rig, endpoint string, all []*net.TCPConn) (here, others []*net.TCPConn) {
	r.T.Helper()
	ct := r.Loxicmd("get ct --endpoint=%s --service=%s/tcp", endpoint, all[0].RemoteAddr())
	for _, c := range all {
		if strings.Contains(ct, fmt.Sprint(" ", c.LocalAddr().(*net.TCPAddr).Port, " ")) {
			here = append(here, c)
		} else {
			others = append(others, c)
		}
	}
	return here, others
}

// TestDrain checks that a drained endpoint gets no new connections and keeps its existing ones,
// also across a restart. After the deadline, they are reset at the configured rate. Connections of
// other endpoints continue.
func TestDrain(t *testing.T) {
	t.Parallel()
	const all, rate = 90, 10
	r := rig.Shared(t)
	ended := serveCountedEcho(r)
	r.Loxicmd("create lb %s --tcp=80:7 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	conns := openConnections(r, rig.Join(rig.VIP4, 80), all)
	drained, others := splitByEndpoint(r, "31.31.31.1", conns)
	if len(drained) != all/3 {
		t.Fatalf("%d of %d connections are at the endpoint", len(drained), all)
	}
	opened := func() float64 { return r.Metric("endpoint_connections_total", "endpoint=31.31.31.1:7") }
	r.Loxicmd("drain endpoint 31.31.31.1:7")
	r.EventuallyShows("get lb -o wide", "31.31.31.1", " draining ")
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		was := opened()
		others = append(others, openConnections(r, rig.Join(rig.VIP4, 80), 3)...)
		if now := opened(); now != was {
			return fmt.Errorf("%v connections were opened to the drained endpoint", now-was)
		}
		return nil
	})
	before := opened()
	r.Kill()
	r.Restart()
	others = append(others, openConnections(r, rig.Join(rig.VIP4, 80), 9)...)
	if now := opened(); now != before {
		t.Errorf("%v connections came after the restart", now-before)
	}
	for _, c := range drained {
		if err := rig.Exchange(c, "still here"); err != nil {
			t.Fatal(err)
		}
	}
	stop := keepUsing(t, others)
	r.Loxicmd("drain endpoint 31.31.31.1:7 --deadline=1s --rate=%d", rate)
	start := time.Now()
	if out := r.Loxicmd("get drain"); !strings.Contains(out, "31.31.31.1:7") || !strings.Contains(out, fmt.Sprint(len(drained))) {
		t.Errorf("get drain:\n%s", out)
	}
	awaitResets(t, drained, time.Second+time.Duration(all/3/rate)*time.Second+rig.Patience)
	if least := time.Second + time.Duration(len(drained)/rate-1)*time.Second; time.Since(start) < least-time.Second/2 {
		t.Errorf("%d connections ended %v after the command, want %d a second, a second later", len(drained), time.Since(start), rate)
	}
	ended.wantResets(t, len(drained))
	stop()
	r.Loxicmd("undrain endpoint 31.31.31.1:7")
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		was := opened()
		openConnections(r, rig.Join(rig.VIP4, 80), 3)
		if opened() == was {
			return fmt.Errorf("the endpoint gets no connections")
		}
		return nil
	})
	if _, err := r.Command("drain", "endpoint", "9.9.9.9:80"); err == nil || !strings.Contains(err.Error(), "is not an endpoint of any service") {
		t.Errorf("drain of an unknown endpoint: %v", err)
	}
}

// TestUndrainAfterRemoval checks that a second drain ends all of the endpoint's connections,
// including those of a service from which it was removed.
//
// P57 undrain stops a drain for all connections of the endpoint, also of services from which it was
// removed, and after a crash of the daemon
func TestUndrainAfterRemoval(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	serveCountedEcho(r)
	var here, others []*net.TCPConn
	for _, port := range []int{80, 81} {
		r.Loxicmd("create lb %s --tcp=%d:7 --endpoints=31.31.31.1:1,32.32.32.1:1", rig.VIP4, port)
		at, elsewhere := splitByEndpoint(r, "31.31.31.1", openConnections(r, rig.Join(rig.VIP4, port), 10))
		here, others = append(here, at...), append(others, elsewhere...)
	}
	// The first deadline must not pass before undrain: on a busy machine, a restart takes
	// seconds.
	const deadline = 12 * time.Second
	r.Loxicmd("drain endpoint 31.31.31.1:7 --deadline=%s", deadline)
	r.Loxicmd("drain endpoint 32.32.32.1 --deadline=%s", deadline+time.Second)
	r.Loxicmd("create lb %s --tcp=80:7 --endpoints=32.32.32.1:1", rig.VIP4)
	r.Kill()
	r.Restart()
	r.Loxicmd("undrain endpoint 31.31.31.1:7")
	awaitResets(t, others, deadline+time.Second+rig.Patience)
	for _, c := range here {
		if err := rig.Exchange(c, "still here"); err != nil {
			t.Errorf("after the deadline of a drain that undrain has stopped: %v", err)
		}
	}
	r.Loxicmd("drain endpoint 31.31.31.1:7 --deadline=1s")
	awaitResets(t, here, time.Second+rig.Patience)
}
