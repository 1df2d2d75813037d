package ha_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// rounds is how often each time is measured.
const rounds = 5

// reaction is how soon the router's kernel must have lost a route: that is the sum of the node's
// reaction and of what the router takes itself.
const reaction = 200 * time.Millisecond

// TestWithdraw measures how soon a router loses a VIP that a node no longer serves.
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
	p.awaitHops(vip, 1)
	for what, c := range map[string]struct{ lose, restore func() }{
		"service deleted": {
			func() {
				n.request(http.MethodDelete, "loadbalancer/externalipaddress/"+vip+"/port/80/protocol/tcp", "")
			}, create,
		},
		"last endpoint fails": {
			func() { n.hostState(endpointAddr(0), "red") }, func() { n.hostState(endpointAddr(0), "green") },
		},
		"role FAULT": {func() { n.role("FAULT") }, func() { n.role("NOT_DEFINED") }},
	} {
		t.Logf("%s: %s", what, measure(t, func() time.Duration {
			began := time.Now()
			c.lose()
			p.awaitHops(vip, 0)
			took := time.Since(began)
			c.restore()
			p.awaitHops(vip, 1)
			return took
		}))
	}
	if got := n.loxicmd("describe lb"); !strings.Contains(got, vip+"/32") || !strings.Contains(got, "announced: an endpoint takes connections") {
		t.Errorf("describe lb says:\n%s", got)
	}
	n.hostState(endpointAddr(0), "red")
	p.awaitHops(vip, 0)
	if got := n.loxicmd("get lb -o wide"); !strings.Contains(got, "withdrawn: no endpoint takes connections") {
		t.Errorf("get lb says:\n%s", got)
	}
	n.hostState(endpointAddr(0), "green")
	p.awaitHops(vip, 1)
	agree(t, p)
}

// TestDrainReaction measures how soon a router prefers the other node.
func TestDrainReaction(t *testing.T) {
	p := newPair(t)
	for _, n := range p.nodes {
		n.loxicmd("create lb %s --tcp=80:80 --endpoints=%s:1 --mode=onearm --bgp", vip, endpointAddr(0))
	}
	p.awaitHops(vip, 2)
	n := p.nodes[0]
	t.Logf("drain: %s", measure(t, func() time.Duration {
		began := time.Now()
		n.request(http.MethodPost, "node/drain", "{}")
		p.awaitHops(vip, 1)
		took := time.Since(began)
		if hops := p.nextHops(vip); hops[0] != p.nodes[1].addr {
			t.Errorf("the router prefers %s", hops)
		}
		n.loxicmd("node resume")
		p.awaitHops(vip, 2)
		return took
	}))
}

// measure returns the median of some rounds, and all of them.
func measure(t *testing.T, round func() time.Duration) string {
	t.Helper()
	var all []time.Duration
	for range rounds {
		all = append(all, round().Round(time.Millisecond))
	}
	slices.Sort(all)
	median := all[len(all)/2]
	if median > reaction {
		t.Errorf("the median is %v, more than %v", median, reaction)
	}
	return fmt.Sprintf("median %v of %v", median, all)
}
