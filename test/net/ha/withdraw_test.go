package ha_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// rounds is the number of measurements of each time.
const rounds = 5

// maxWithdrawTime limits the time until the router's kernel has no route. It includes the time that
// the router itself needs.
const maxWithdrawTime = 200 * time.Millisecond

// TestWithdraw measures the time until a router removes the route to a VIP that a node no longer
// serves.
//
// P81 A router loses a VIP within 200 ms of the deletion of its service, the failure of its last
// endpoint or the drain of the node (median of 5).
func TestWithdraw(t *testing.T) {
	p := newPair(t)
	n := p.nodes[0]
	create := func() {
		n.loxicmd("create lb %s --tcp=80:80 --endpoints=%s:1 --mode=onearm --monitor --bgp", vip, endpointAddr(0))
	}
	create()
	p.awaitNextHops(vip, 1)
	for what, c := range map[string]struct{ lose, restore func() }{
		"service deleted": {
			func() {
				n.request(http.MethodDelete, "loadbalancer/externalipaddress/"+vip+"/port/80/protocol/tcp", "")
			}, create,
		},
		"last endpoint fails": {
			func() { n.reportState(endpointAddr(0), "red") }, func() { n.reportState(endpointAddr(0), "green") },
		},
		"role FAULT": {func() { n.setRole("FAULT") }, func() { n.setRole("NOT_DEFINED") }},
	} {
		t.Logf("%s: %s", what, measure(t, func() time.Duration {
			began := time.Now()
			c.lose()
			p.awaitNextHops(vip, 0)
			took := time.Since(began)
			c.restore()
			p.awaitNextHops(vip, 1)
			return took
		}))
	}
	if got := n.loxicmd("describe lb"); !strings.Contains(got, vip+"/32") || !strings.Contains(got, "announced: an endpoint takes connections") {
		t.Errorf("describe lb prints:\n%s", got)
	}
	n.reportState(endpointAddr(0), "red")
	p.awaitNextHops(vip, 0)
	if got := n.loxicmd("get lb -o wide"); !strings.Contains(got, "withdrawn: no endpoint takes connections") {
		t.Errorf("get lb prints:\n%s", got)
	}
	n.reportState(endpointAddr(0), "green")
	p.awaitNextHops(vip, 1)
	checkViews(t, p)
}

// TestDrainReaction measures the time until a router uses only the other node.
func TestDrainReaction(t *testing.T) {
	p := newPair(t)
	for _, n := range p.nodes {
		n.loxicmd("create lb %s --tcp=80:80 --endpoints=%s:1 --mode=onearm --bgp", vip, endpointAddr(0))
	}
	p.awaitNextHops(vip, 2)
	n := p.nodes[0]
	t.Logf("drain: %s", measure(t, func() time.Duration {
		began := time.Now()
		n.request(http.MethodPost, "node/drain", "{}")
		p.awaitNextHops(vip, 1)
		took := time.Since(began)
		if hops := p.nextHops(vip); hops[0] != p.nodes[1].addr {
			t.Errorf("the router prefers %s", hops)
		}
		n.loxicmd("node resume")
		p.awaitNextHops(vip, 2)
		return took
	}))
}

// measure returns the median of some rounds, and the times of all of them, as text.
func measure(t *testing.T, round func() time.Duration) string {
	t.Helper()
	var all []time.Duration
	for range rounds {
		all = append(all, round().Round(time.Millisecond))
	}
	slices.Sort(all)
	median := all[len(all)/2]
	if median > maxWithdrawTime {
		t.Errorf("the median is %v, more than %v", median, maxWithdrawTime)
	}
	return fmt.Sprintf("median %v of %v", median, all)
}
