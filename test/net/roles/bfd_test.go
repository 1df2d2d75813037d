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

// slack is what a busy machine adds to detection times.
const slack = 700 * time.Millisecond

// longEnough is how many answers take longer than the detection time: they come every
// labtest.AskEvery.
const longEnough = int64(4 * detection / labtest.AskEvery)

// during observes the VIP while something happens, and until both nodes agree on the next MASTER.
func (p *pair) during(next *node, what func()) labtest.View {
	p.t.Helper()
	o := p.observe(p.watched)
	p.answered = func(n int64) {
		p.t.Helper()
		end := o.Count() + n
		labtest.Eventually(p.t, patience, func(context.Context) error {
			if o.Count() < end {
				return fmt.Errorf("no node answers for %s", p.watched)
			}
			return nil
		})
	}
	p.answered(10)
	began := time.Now()
	what()
	p.settled(next)
	v := o.End(began)
	p.t.Logf("%+v", v)
	return v
}

// P84 Of two nodes with a BFD session the survivor owns the VIPs within the detection time, and the
// other one stays BACKUP when it returns
func TestBFDLink(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a, b := p.elected() // a has the higher rank
	v := p.during(b, func() {
		rig.MustRun(t, p.lan, "ip", "link", "set", "to-"+a.name, "down")
		b.becomes("MASTER")
		a.becomes("MASTER") // nobody hears it
		rig.MustRun(t, p.lan, "ip", "link", "set", "to-"+a.name, "up")
	})
	if v.Took > detection+slack || v.Both > detection+slack {
		t.Errorf("got %+v, want v.Took <= detection+slack, v.Both <= detection+slack", v)
	}
}

// TestBFDKilled checks that a node whose daemon was killed is BACKUP when it starts again, and that
// its kernel does not answer for the VIPs that its peer owns.
func TestBFDKilled(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a, b := p.elected()
	v := p.during(b, func() {
		a.Kill()
		b.becomes("MASTER")
		p.answered(longEnough) // by b alone
		a.start()
	})
	if v.Took > detection+slack || v.Both > detection || v.Last != b.mac {
		t.Errorf("got %+v, want v.Took <= detection+slack, v.Both <= detection, v.Last == b.mac", v)
	}
}

// TestBFDStopped checks the same of a daemon that was stopped, when it continues.
func TestBFDStopped(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a, b := p.elected()
	v := p.during(b, func() {
		a.Signal(syscall.SIGSTOP)
		b.becomes("MASTER")
		p.answered(longEnough) // by b alone
		a.Signal(syscall.SIGCONT)
	})
	if v.Took > detection+slack || v.Both > detection || v.Last != b.mac {
		t.Errorf("got %+v, want v.Took <= detection+slack, v.Both <= detection, v.Last == b.mac", v)
	}
}

// TestBFDTogether checks that two daemons that are killed and started together agree on one MASTER.
func TestBFDTogether(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.elected()
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
	master, _ := p.elected()
	if v := o.End(began); v.Last != master.mac || v.Both > detection+slack {
		t.Errorf("got %+v, want v.Last == master.mac, v.Both <= detection+slack", v)
	}
}

// TestBFDPartition checks that one of two masters yields within the detection time when they hear
// each other again.
func TestBFDPartition(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a, b := p.elected()
	p.partition(true)
	a.becomes("MASTER")
	b.becomes("MASTER")
	higher := p.nodes[1]
	v := p.during(higher, func() { p.partition(false) })
	if v.Both > detection+slack || v.Last != higher.mac {
		t.Errorf("got %+v, want v.Both <= detection+slack, v.Last == higher.mac", v)
	}
}

// TestBFDHandOver checks that a node that ends on purpose hands over at once, and that one that
// preempts takes its role back.
func TestBFDHandOver(t *testing.T) {
	t.Parallel()
	p := newPair(t, "--preempt")
	a, b := p.nodes[1], p.nodes[0]
	p.settled(a)
	v := p.during(a, func() {
		a.Stop()
		b.becomes("MASTER")
		a.start()
	})
	if v.Both > detection || v.Silent > detection+slack || v.Last != a.mac {
		t.Errorf("got %+v, want v.Both <= detection, v.Silent <= detection+slack, v.Last == a.mac", v)
	}
}

// TestBFDOperator checks that an operator's role moves the VIPs.
func TestBFDOperator(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a, b := p.elected()
	for range 2 {
		v := p.during(b, func() { b.Loxicmd("set hastate MASTER") })
		if v.Both > detection+slack || v.Last != b.mac {
			t.Errorf("got %+v, want v.Both <= detection+slack, v.Last == b.mac", v)
		}
		a, b = b, a
	}
	p.during(b, func() { a.Loxicmd("set hastate BACKUP") })
}

// TestBFDTimes measures the time until the survivor answers, when the other node falls silent. Its
// daemon is stopped, and its link goes down.
func TestBFDTimes(t *testing.T) {
	p := newPair(t)
	var times []time.Duration
	for range 5 {
		a, b := p.elected()
		v := p.during(b, func() {
			a.Signal(syscall.SIGSTOP)
			b.becomes("MASTER")
			a.Signal(syscall.SIGCONT)
		})
		times = append(times, v.Took)
	}
	slices.Sort(times)
	t.Logf("silent node, BFD 3 x %s: median %s of %v", interval, times[2], times)
	if times[2] > 500*time.Millisecond+slack {
		t.Errorf("median %s", times[2])
	}
}

// TestBFDIPv6 checks failover, return and partition with sessions over IPv6, as a client of an IPv6
// VIP sees them.
func TestBFDIPv6(t *testing.T) {
	t.Parallel()
	for name, form := range map[string]string{"global": "2001:db8::%d", "link-local": "fe80::%d%%eth0"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPairOver(t, form)
			p.watched = vip6
			a, b := p.elected()
			v := p.during(b, func() {
				rig.MustRun(t, p.lan, "ip", "link", "set", "to-"+a.name, "down")
				b.becomes("MASTER")
				a.becomes("MASTER") // nobody hears it
				rig.MustRun(t, p.lan, "ip", "link", "set", "to-"+a.name, "up")
			})
			if v.Took > detection+slack || v.Both > detection+slack || v.Last != b.mac {
				t.Errorf("failover and return: %+v", v)
			}
			p.partition(true)
			a.becomes("MASTER")
			b.becomes("MASTER")
			higher := p.nodes[1]
			v = p.during(higher, func() { p.partition(false) })
			if v.Both > detection+slack || v.Last != higher.mac {
				t.Errorf("partition: %+v", v)
			}
		})
	}
}
