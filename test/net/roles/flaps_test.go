package roles_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

const (
	flaps     = 200  // at once
	flapsLong = 1000 // of make test-long, in a minute
)

// flapVIPs are VIPs of two instances, each with both IP versions.
var flapVIPs = [...]string{"10.0.0.101", "2001:db8::101", "10.0.0.102", "2001:db8::102"}

func flapInstance(v int) string { return fmt.Sprintf("i%d", v/2) }

// TestBFDFlaps changes services, endpoints, links and roles of both nodes at random while a host of
// the network asks for the VIPs.
//
// P85 Two nodes never own a VIP for longer than the detection time while services, endpoints, links
// and roles change at random, and the final owner is the desired one
func TestBFDFlaps(t *testing.T) {
	t.Parallel()
	random := rig.Seeded(t)
	p := newPairOver(t, "2001:db8::%d")
	for _, n := range p.nodes {
		for _, instance := range []string{"i0", "i1"} {
			n.Loxicmd("create bfd %s --sourceIP=%s --interval=%d --instance=%s", p.other(n).address, n.address, interval.Microseconds(), instance)
		}
		for v := range flapVIPs {
			n.serve(v)
		}
	}
	var watchers [len(flapVIPs)]*observer
	for v, vip := range flapVIPs {
		watchers[v] = p.observe(vip)
	}
	began, count, pace := time.Now(), flaps, time.NewTicker(time.Microsecond)
	if rig.IsLong() {
		count, pace = flapsLong, time.NewTicker(time.Minute/flapsLong)
	}
	for range count {
		p.flap(random)
		<-pace.C
	}
	t.Logf("%d changes in %v", count, time.Since(began).Round(time.Second))
	for i, n := range p.nodes {
		rig.MustRun(t, p.lan, "ip", "link", "set", "to-"+n.name, "up")
		for v := range flapVIPs {
			n.serve(v)
		}
		n.Loxicmd("set hastate BACKUP --instance=i%d", i)
		n.Loxicmd("set hastate NOT_DEFINED --instance=i%d", 1-i)
	}
	p.agree()
	for i, n := range p.nodes { // i0 belongs to a, i1 to b
		instance := fmt.Sprintf("i%d", i)
		n.Loxicmd("set hastate MASTER --instance=%s", instance)
		n.hasRole(instance, "MASTER")
		p.other(n).hasRole(instance, "BACKUP")
	}
	for v, o := range watchers {
		end := o.Count() + longEnough
		labtest.Eventually(t, patience, func(context.Context) error {
			if o.Count() < end {
				return fmt.Errorf("no node answers for %s", flapVIPs[v])
			}
			return nil
		})
		view := o.End(began)
		t.Logf("%s: %+v", flapVIPs[v], view)
		if view.Both > detection+slack || view.Last != p.nodes[v/2].mac {
			t.Errorf("%s: %+v, want the last answer of %s", flapVIPs[v], view, p.nodes[v/2].mac)
		}
	}
}

func (p *pair) other(n *node) *node {
	if n == p.nodes[0] {
		return p.nodes[1]
	}
	return p.nodes[0]
}

// serve creates the service of a VIP.
func (n *node) serve(v int) {
	n.T.Helper()
	endpoint := "10.0.0.9"
	if strings.Contains(flapVIPs[v], ":") {
		endpoint = "[2001:db8::9]"
	}
	n.Loxicmd("create lb %s --tcp=80:80 --endpoints=%s:1 --mode=onearm --name=web:%s", flapVIPs[v], endpoint, flapInstance(v))
}

// flap changes one thing of one node.
func (p *pair) flap(random *rand.Rand) {
	n, v := p.nodes[random.IntN(2)], random.IntN(len(flapVIPs))
	switch random.IntN(10) {
	case 0, 1:
		n.Loxicmd("delete lb %s --tcp=80", flapVIPs[v]) // it may be gone
	case 2, 3:
		n.serve(v)
	case 4:
		n.Loxicmd("drain endpoint 10.0.0.9:80")
	case 5:
		n.Loxicmd("undrain endpoint 10.0.0.9:80")
	case 6, 7, 8:
		role := []string{"MASTER", "BACKUP", "FAULT", "NOT_DEFINED"}[random.IntN(4)]
		n.Loxicmd("set hastate %s --instance=%s", role, flapInstance(v))
	case 9:
		rig.MustRun(p.t, p.lan, "ip", "link", "set", "to-"+n.name, []string{"up", "up", "up", "down"}[random.IntN(4)])
	}
}

// hasRole waits until a node has a role in an instance.
func (n *node) hasRole(instance, role string) {
	n.T.Helper()
	labtest.Eventually(n.T, patience, func(context.Context) error {
		out, err := n.Command("get", "hastate")
		for line := range strings.Lines(out) {
			if strings.Contains(line, instance) && strings.Contains(line, role) {
				return nil
			}
		}
		return fmt.Errorf("%s is not %s of %s: %w\n%s", n.name, role, instance, err, out)
	})
}
