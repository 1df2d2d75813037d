package roles_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"loxilb/test/netnstest/labtest"
)

// TestRoleLease checks a MASTER that a controller has set with a lease. Its kernel answers for the
// VIP while the daemon does not run, until the lease ends. The node is BACKUP then, but still
// MASTER if the daemon runs again in time.
func TestRoleLease(t *testing.T) {
	t.Parallel()
	const vip, lease = "10.0.0.101", 12 * time.Second // a busy machine takes 6 s for a restart
	p := newPair(t)
	a := p.nodes[0]
	a.Loxicmd("create lb %s --tcp=80:80 --endpoints=10.0.0.9:1 --mode=onearm --name=web:red", vip)
	a.Loxicmd("set hastate MASTER --instance=red --lease=%v", lease)
	a.hasRole("red", "MASTER")
	o := p.observe(vip)
	defer o.End(time.Now())
	o.wantAnswer()
	a.Kill()
	a.start()
	a.hasRole("red", "MASTER")
	o.wantAnswer()
	a.Kill()
	killed := time.Now()
	o.wantSilence()
	if took := time.Since(killed); took < lease*9/10 {
		t.Errorf("the kernel stopped answering after %v, the lease is %v", took, lease)
	}
	a.start()
	a.hasRole("red", "BACKUP")
	o.wantSilence()
	a.Loxicmd("set hastate MASTER --instance=red --lease=%v", lease)
	o.wantAnswer()
}

// wantAnswer waits for another answer.
func (o *observer) wantAnswer() {
	o.t.Helper()
	before := o.Count()
	labtest.Eventually(o.t, patience, func(context.Context) error {
		if o.Count() == before {
			return fmt.Errorf("no node answers for %s", o.vip)
		}
		return nil
	})
}

// wantSilence waits until nobody has answered for half a second.
func (o *observer) wantSilence() {
	o.t.Helper()
	before, since := o.Count(), time.Now()
	labtest.Eventually(o.t, patience, func(context.Context) error {
		if now := o.Count(); now != before {
			before, since = now, time.Now()
		}
		if silent := time.Since(since); silent < time.Second/2 {
			return fmt.Errorf("no node has answered for %s for %v only", o.vip, silent)
		}
		return nil
	})
}
