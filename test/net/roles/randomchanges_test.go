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
	changes     = 200  // as fast as possible
	changesLong = 1000 // within a minute, in make test-long
)

// randomVIPs are VIPs of two instances, each with both IP versions.
var randomVIPs = [...]string{"10.0.0.101", "2001:db8::101", "10.0.0.102", "2001:db8::102"}

func instanceOf(v int) string { return fmt.Sprintf("i%d", v/2) }

// TestBFDRandomChanges changes services, endpoints, links and roles of both nodes at random, while
// a client resolves the VIPs.
//
// P85 Two nodes never own a VIP for longer than the detection time while services, endpoints, links
// and roles change at random, and the final owner is the desired one
func TestBFDRandomChanges(t *testing.T) {
	t.Parallel()
	random := rig.Seeded(t)
	p := newPairOver(t, "2001:db8::%d")
	for _, n := range p.nodes {
		for _, instance := range []string{"i0", "i1"} {
			n.Loxicmd("create bfd %s --sourceIP=%s --interval=%d --instance=%s", p.peer(n).address, n.address, interval.Microseconds(), instance)
		}
		for v := range randomVIPs {
			n.createService(v)
		}
	}
	var watchers [len(randomVIPs)]*observer
	for v, vip := range randomVIPs {
		watchers[v] = p.observe(vip)
	}
	began, count, pace := time.Now(), changes, time.NewTicker(time.Microsecond)
	if rig.IsLong() {
		count, pace = changesLong, time.NewTicker(time.Minute/changesLong)
	}
	for range count {
		p.changeAtRandom(random)
		<-pace.C
	}
	t.Logf("%d changes in %v", count, time.Since(began).Round(time.Second))
	for i, n := range p.nodes {
		rig.MustRun(t, p.lan, "ip", "link", "set", "to-"+n.name, "up")
		for v := range randomVIPs {
			n.createService(v)
		}
		n.Loxicmd("set hastate BACKUP --instance=i%d", i)
		n.Loxicmd("set hastate NOT_DEFINED --instance=i%d", 1-i)
	}
	p.awaitSessions()
	for i, n := range p.nodes { // i0 belongs to a, i1 to b
		instance := fmt.Sprintf("i%d", i)
		n.Loxicmd("set hastate MASTER --instance=%s", instance)
		n.awaitInstanceRole(instance, "MASTER")
		p.peer(n).awaitInstanceRole(instance, "BACKUP")
	}
	for v, o := range watchers {
		end := o.Count() + beyondDetection
		labtest.Eventually(t, patience, func(context.Context) error {
			if o.Count() < end {
				return fmt.Errorf("no node answers for %s", randomVIPs[v])
			}
			return nil
		})
		view := o.End(began)
		t.Logf("%s: %+v", randomVIPs[v], view)
		if view.Overlap > detection+slack || view.LastMAC != p.nodes[v/2].mac {
			t.Errorf("%s: %+v, want the last answer of %s", randomVIPs[v], view, p.nodes[v/2].mac)
		}
	}
}

func (p *pair) peer(n *node) *node {
	if n == p.nodes[0] {
		return p.nodes[1]
	}
	return p.nodes[0]
}

// createService creates the service of one of the VIPs.
func (n *node) createService(v int) {
	n.T.Helper()
	endpoint := "10.0.0.9"
	if strings.Contains(randomVIPs[v], ":") {
		endpoint = "[2001:db8::9]"
	}
	n.Loxicmd("create lb %s --tcp=80:80 --endpoints=%s:1 --mode=onearm --name=web:%s", randomVIPs[v], endpoint, instanceOf(v))
}

// changeAtRandom changes a service, an endpoint, a role or the link of one node.
func (p *pair) changeAtRandom(random *rand.Rand) {
	n, v := p.nodes[random.IntN(2)], random.IntN(len(randomVIPs))
	switch random.IntN(10) {
	case 0, 1:
		n.Loxicmd("delete lb %s --tcp=80", randomVIPs[v]) // fails if it was deleted before
	case 2, 3:
		n.createService(v)
	case 4:
		n.Loxicmd("drain endpoint 10.0.0.9:80")
	case 5:
		n.Loxicmd("undrain endpoint 10.0.0.9:80")
	case 6, 7, 8:
		role := []string{"MASTER", "BACKUP", "FAULT", "NOT_DEFINED"}[random.IntN(4)]
		n.Loxicmd("set hastate %s --instance=%s", role, instanceOf(v))
	case 9:
		rig.MustRun(p.t, p.lan, "ip", "link", "set", "to-"+n.name, []string{"up", "up", "up", "down"}[random.IntN(4)])
	}
}

// awaitInstanceRole waits until a node has the given role in an instance.
func (n *node) awaitInstanceRole(instance, role string) {
	n.T.Helper()
	labtest.Eventually(n.T, patience, func(context.Context) error {
		out, err := n.Command("get", "hastate")
		for line := range strings.Lines(out) {
			if strings.Contains(line, instance) && strings.Contains(line, role) {
				return nil
			}
		}
		return fmt.Errorf("%s is not %s in instance %s: %w\n%s", n.name, role, instance, err, out)
	})
}
