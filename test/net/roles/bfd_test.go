package roles_test

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// slack is the time that a busy machine adds to detection times.
const slack = 700 * time.Millisecond

// beyondDetection is a number of answers, one every labtest.RequestInterval, that takes longer than
// the detection time.
const beyondDetection = int64(4 * detection / labtest.RequestInterval)

// observeWhile observes the VIP while it calls change, and until both nodes agree that next is the
// MASTER.
func (p *pair) observeWhile(next *node, change func()) labtest.View {
	p.t.Helper()
	o := p.observe(p.observedVIP)
	p.awaitAnswers = func(n int64) {
		p.t.Helper()
		end := o.Count() + n
		labtest.Eventually(p.t, patience, func(context.Context) error {
			if o.Count() < end {
				return fmt.Errorf("no node answers for %s", p.observedVIP)
			}
			return nil
		})
	}
	p.awaitAnswers(10)
	began := time.Now()
	change()
	p.awaitRoles(next)
	v := o.End(began)
	p.t.Logf("%+v", v)
	return v
}

// P84 If one of two nodes with a BFD session fails, the other one owns the VIPs within the
// detection time; the failed node stays BACKUP when it returns
func TestBFDLink(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a, b := p.awaitElection() // a has the higher rank
	v := p.observeWhile(b, func() {
		rig.MustRun(t, p.lan, "ip", "link", "set", "to-"+a.name, "down")
		b.awaitRole("MASTER")
		a.awaitRole("MASTER") // nobody hears it
		rig.MustRun(t, p.lan, "ip", "link", "set", "to-"+a.name, "up")
	})
	if v.FailoverTime > detection+slack || v.Overlap > detection+slack {
		t.Errorf("got %+v, want v.FailoverTime <= detection+slack, v.Overlap <= detection+slack", v)
	}
}

// TestBFDKilled checks that a node whose daemon was killed is BACKUP when it starts again, and that
// its kernel does not answer for the VIPs that its peer owns.
func TestBFDKilled(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a, b := p.awaitElection()
	v := p.observeWhile(b, func() {
		a.Kill()
		b.awaitRole("MASTER")
		p.awaitAnswers(beyondDetection) // by b alone
		a.start()
	})
	if v.FailoverTime > detection+slack || v.Overlap > detection || v.LastMAC != b.mac {
		t.Errorf("got %+v, want v.FailoverTime <= detection+slack, v.Overlap <= detection, v.LastMAC == b.mac", v)
	}
}

// TestBFDStopped checks the same for a daemon that was stopped by SIGSTOP, when it continues.
func TestBFDStopped(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a, b := p.awaitElection()
	v := p.observeWhile(b, func() {
		a.Signal(syscall.SIGSTOP)
		b.awaitRole("MASTER")
		p.awaitAnswers(beyondDetection) // by b alone
		a.Signal(syscall.SIGCONT)
	})
	if v.FailoverTime > detection+slack || v.Overlap > detection || v.LastMAC != b.mac {
		t.Errorf("got %+v, want v.FailoverTime <= detection+slack, v.Overlap <= detection, v.LastMAC == b.mac", v)
	}
}

// TestBFDStartTogether checks that two daemons that are killed and started at the same time agree
// on one MASTER.
func TestBFDStartTogether(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.awaitElection()
	for _, n := range p.nodes {
		n.Kill()
	}
	o := p.observe(vip)
	began := time.Now()
	done := make(chan struct{}, 2)
	for _, n := range p.nodes {
		go func() { n.start(); done <- struct{}{} }()
	}
	<-done
	<-done
	master, _ := p.awaitElection()
	if v := o.End(began); v.LastMAC != master.mac || v.Overlap > detection+slack {
		t.Errorf("got %+v, want v.LastMAC == master.mac, v.Overlap <= detection+slack", v)
	}
}

// TestBFDPartition checks that one of two masters becomes BACKUP within the detection time when
// their session is up again.
func TestBFDPartition(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a, b := p.awaitElection()
	p.setPartition(true)
	a.awaitRole("MASTER")
	b.awaitRole("MASTER")
	higher := p.nodes[1]
	v := p.observeWhile(higher, func() { p.setPartition(false) })
	if v.Overlap > detection+slack || v.LastMAC != higher.mac {
		t.Errorf("got %+v, want v.Overlap <= detection+slack, v.LastMAC == higher.mac", v)
	}
}

// TestBFDHandOver checks that a node that is stopped hands over immediately, and that with
// --preempt it becomes MASTER again after its next start.
func TestBFDHandOver(t *testing.T) {
	t.Parallel()
	p := newPair(t, "--preempt")
	a, b := p.nodes[1], p.nodes[0]
	p.awaitRoles(a)
	v := p.observeWhile(a, func() {
		a.Stop()
		b.awaitRole("MASTER")
		a.start()
	})
	if v.Overlap > detection || v.Silence > detection+slack || v.LastMAC != a.mac {
		t.Errorf("got %+v, want v.Overlap <= detection, v.Silence <= detection+slack, v.LastMAC == a.mac", v)
	}
}

// TestBFDOperator checks that VIPs move when an operator sets a node's role.
func TestBFDOperator(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a, b := p.awaitElection()
	for range 2 {
		v := p.observeWhile(b, func() { b.Loxicmd("set hastate MASTER") })
		if v.Overlap > detection+slack || v.LastMAC != b.mac {
			t.Errorf("got %+v, want v.Overlap <= detection+slack, v.LastMAC == b.mac", v)
		}
		a, b = b, a
	}
	p.observeWhile(b, func() { a.Loxicmd("set hastate BACKUP") })
}

// TestBFDFailoverTime measures the time until a node answers for the VIP after the other node's
// daemon was stopped by SIGSTOP.
func TestBFDFailoverTime(t *testing.T) {
	p := newPair(t)
	var times []time.Duration
	for range 5 {
		a, b := p.awaitElection()
		v := p.observeWhile(b, func() {
			a.Signal(syscall.SIGSTOP)
			b.awaitRole("MASTER")
			a.Signal(syscall.SIGCONT)
		})
		times = append(times, v.FailoverTime)
	}
	slices.Sort(times)
	t.Logf("silent node, BFD 3 x %s: median %s of %v", interval, times[2], times)
	if times[2] > 500*time.Millisecond+slack {
		t.Errorf("median %s", times[2])
	}
}

// TestBFDIPv6 checks failover, return and partition with sessions over IPv6, by the answers for an
// IPv6 VIP.
func TestBFDIPv6(t *testing.T) {
	t.Parallel()
	for name, form := range map[string]string{"global": "2001:db8::%d", "link-local": "fe80::%d%%eth0"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPairOver(t, form)
			p.observedVIP = vip6
			a, b := p.awaitElection()
			v := p.observeWhile(b, func() {
				rig.MustRun(t, p.lan, "ip", "link", "set", "to-"+a.name, "down")
				b.awaitRole("MASTER")
				a.awaitRole("MASTER") // nobody hears it
				rig.MustRun(t, p.lan, "ip", "link", "set", "to-"+a.name, "up")
			})
			if v.FailoverTime > detection+slack || v.Overlap > detection+slack || v.LastMAC != b.mac {
				t.Errorf("failover and return: %+v", v)
			}
			p.setPartition(true)
			a.awaitRole("MASTER")
			b.awaitRole("MASTER")
			higher := p.nodes[1]
			v = p.observeWhile(higher, func() { p.setPartition(false) })
			if v.Overlap > detection+slack || v.LastMAC != higher.mac {
				t.Errorf("partition: %+v", v)
			}
		})
	}
}
