package net_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"loxilb/internal/netnstest/labtest"
)

// at are the connections, all of one service, that a server sees at this endpoint's address.
func (r *rig) at(endpoint string, all []*net.TCPConn) (here, others []*net.TCPConn) {
	r.t.Helper()
	ct := r.loxicmd("get ct --endpoint=%s --service=%s/tcp", endpoint, all[0].RemoteAddr())
	for _, c := range all {
		if strings.Contains(ct, fmt.Sprint(" ", c.LocalAddr().(*net.TCPAddr).Port, " ")) {
			here = append(here, c)
		} else {
			others = append(others, c)
		}
	}
	return here, others
}

// TestDrain: an endpoint that is drained takes no new connections, those that it has go on, over a restart too, and are ended for both
// sides after the deadline, at the pace. All others go on.
func TestDrain(t *testing.T) {
	t.Parallel()
	const all, rate = 90, 10
	r := newRig(t, options{})
	ended := r.serveEnds()
	r.loxicmd("create lb %s --tcp=80:7 --endpoints=%s", vip4, endpoints4())
	conns := r.open(join(vip4, 80), all)
	drained, others := r.at("31.31.31.1", conns)
	if len(drained) != all/3 {
		t.Fatalf("%d of %d connections are at the endpoint", len(drained), all)
	}
	opened := func() float64 { return r.metric("endpoint_connections_total", "endpoint=31.31.31.1:7") }
	r.loxicmd("drain endpoint 31.31.31.1:7")
	r.eventuallyShows("get lb -o wide", "31.31.31.1", " drained ")
	labtest.Eventually(t, patience, func(context.Context) error {
		was := opened()
		others = append(others, r.open(join(vip4, 80), 3)...)
		if now := opened(); now != was {
			return fmt.Errorf("%v connections came while it was drained", now-was)
		}
		return nil
	})
	before := opened()
	r.Kill()
	r.restart()
	others = append(others, r.open(join(vip4, 80), 9)...)
	if now := opened(); now != before {
		t.Errorf("%v connections came after the restart", now-before)
	}
	for _, c := range drained {
		if err := exchange(c, "still here"); err != nil {
			t.Fatal(err)
		}
	}
	stop := busy(t, others)
	r.loxicmd("drain endpoint 31.31.31.1:7 --deadline=1s --rate=%d", rate)
	start := time.Now()
	if out := r.loxicmd("get drain"); !strings.Contains(out, "31.31.31.1:7") || !strings.Contains(out, fmt.Sprint(len(drained))) {
		t.Errorf("get drain:\n%s", out)
	}
	allReset(t, drained, time.Second+time.Duration(all/3/rate)*time.Second+patience)
	if least := time.Second + time.Duration(len(drained)/rate-1)*time.Second; time.Since(start) < least-time.Second/2 {
		t.Errorf("%d connections ended %v after the command, want %d a second, a second later", len(drained), time.Since(start), rate)
	}
	ended.want(t, len(drained))
	stop()
	r.loxicmd("undrain endpoint 31.31.31.1:7")
	labtest.Eventually(t, patience, func(context.Context) error {
		was := opened()
		r.open(join(vip4, 80), 3)
		if opened() == was {
			return fmt.Errorf("it takes no connections")
		}
		return nil
	})
	if _, err := r.Command("drain", "endpoint", "9.9.9.9:80"); err == nil || !strings.Contains(err.Error(), "is no endpoint of any service") {
		t.Errorf("an endpoint that no service has: %v", err)
	}
}
