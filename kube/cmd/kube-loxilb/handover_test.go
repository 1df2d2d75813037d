package main

import (
	"testing"
	"time"
)

// TestHandover checks that a replica takes over at once from one that is stopped, and after the end
// of the Lease from one that is killed. An unchanged Service is not written.
func TestHandover(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	run := func() {
		c.run("--cidrPools=20.20.20.0/28", "--setUniqueIP", "--metrics-bind-address=0", "--health-probe-bind-address=0")
	}
	web := service("web", 80)
	c.create(web, endpoints(web, "31.31.31.1"))
	run()
	leader := c.controller
	c.wantAddress(web, "20.20.20.1")
	c.wantCondition(web, "loxilb.io/Programmed", "Programmed")
	version := web.ResourceVersion
	for _, tc := range []struct {
		name, address string
		end           func()
		most          time.Duration // on a busy machine; the Lease is for 15 s
	}{
		{"stopped", "20.20.20.2", func() { leader.Stop() }, 13 * time.Second},
		{"killed", "20.20.20.3", func() { leader.Kill() }, patience},
	} {
		run()
		time.Sleep(3 * time.Second) // until the new replica waits for the Lease
		began := time.Now()
		tc.end()
		next := service(tc.name, 80)
		c.create(next, endpoints(next, "31.31.31.1"))
		c.wantAddress(next, tc.address)
		took := time.Since(began)
		t.Logf("leader %s: a new Service is served after %v", tc.name, took.Round(10*time.Millisecond))
		if took > tc.most {
			t.Errorf("leader %s: a new Service is served after %v", tc.name, took)
		}
		leader = c.controller
	}
	if err := c.get(web); err != nil || web.ResourceVersion != version || addresses(web) != "20.20.20.1" {
		t.Errorf("an unchanged Service has version %s, before %s (%v)", web.ResourceVersion, version, err)
	}
}
