package roles_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"loxilb/test/netnstest/labtest"
)

// TestRoleLease checks the role MASTER that a controller has set with a lease. While the daemon
// does not run, the node's kernel answers for the VIP until the lease ends. The node is still
// MASTER if the daemon starts again before that, and BACKUP afterwards.
func TestRoleLease(t *testing.T) {
	t.Parallel()
	const vip, lease = "10.0.0.101", 12 * time.Second // a busy machine takes 6 s for a restart
	p := newPair(t)
	a := p.nodes[0]
	a.Loxicmd("create lb %s --tcp=80:80 --endpoints=10.0.0.9:1 --mode=onearm --name=web:red", vip)
	a.Loxicmd("set hastate MASTER --instance=red --lease=%v", lease)
	a.awaitInstanceRole("red", "MASTER")
	o := p.observe(vip)
	defer o.End(time.Now())
	o.awaitAnswer()
	a.Kill()
	a.start()
	a.awaitInstanceRole("red", "MASTER")
	o.awaitAnswer()
	a.Kill()
	killed := time.Now()
	o.awaitSilence()
	if took := time.Since(killed); took < lease*9/10 {
		t.Errorf("the kernel stopped answering after %v, the lease is %v", took, lease)
	}
	a.start()
	a.awaitInstanceRole("red", "BACKUP")
	o.awaitSilence()
	a.Loxicmd("set hastate MASTER --instance=red --lease=%v", lease)
	o.awaitAnswer()
}

// awaitAnswer waits for another answer.
func (o *observer) awaitAnswer() {
	o.t.Helper()
	before := o.Count()
	labtest.Eventually(o.t, patience, func(context.Context) error {
		if o.Count() == before {
			return fmt.Errorf("no node answers for %s", o.vip)
		}
		return nil
	})
}

// awaitSilence waits until there was no answer for half a second.
func (o *observer) awaitSilence() {
	o.t.Helper()
	before, since := o.Count(), time.Now()
	labtest.Eventually(o.t, patience, func(context.Context) error {
		if now := o.Count(); now != before {
			before, since = now, time.Now()
		}
		if silent := time.Since(since); silent < time.Second/2 {
			return fmt.Errorf("the last answer for %s was %v ago, want half a second", o.vip, silent)
		}
		return nil
	})
}
