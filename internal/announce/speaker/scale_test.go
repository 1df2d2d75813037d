package speaker

import (
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"loxilb/internal/lb/bgp"
	"loxilb/test/netnstest/routers"
)

// manyRoutes returns routes to n addresses.
func manyRoutes(n int) []bgp.Route {
	routes := make([]bgp.Route, n)
	a := netip.MustParseAddr("100.64.0.1")
	for i := range routes {
		routes[i].Prefix = netip.PrefixFrom(a, 32)
		a = a.Next()
	}
	return routes
}

// TestManyRoutes checks how fast FRR has 10,000 routes, and that a change of one of them costs
// little.
//
// P80 A router has 10,000 VIPs within 5 s after they are announced.
func TestManyRoutes(t *testing.T) {
	l := newLink(t)
	f := l.frr(t, nodeASN)
	c := startChild(t, l.node)
	c.call("SetNeighbor", neighbor("10.0.0.2"))
	c.call("Start", bgp.Speaker{ASN: nodeASN})
	c.established("10.0.0.2")
	routes := manyRoutes(10_000)
	count := func(n int) func(map[netip.Prefix][]routers.Path) bool {
		return func(r map[netip.Prefix][]routers.Path) bool { return len(r) == n }
	}
	var all, one, calls []time.Duration
	for range rounds {
		start := time.Now()
		c.call("SetRoutes", routes)
		all = append(all, timeUntil(t, f, start, "all routes", count(len(routes))))
		if s, err := c.session("10.0.0.2"); err != nil || s.Sent != len(routes) {
			t.Errorf("session: %+v, %v", s, err)
		}
		routes[17].MED = 5
		start = time.Now()
		c.call("SetRoutes", routes)
		calls = append(calls, time.Since(start))
		one = append(one, timeUntil(t, f, start, "the change", func(r map[netip.Prefix][]routers.Path) bool {
			return r[routes[17].Prefix][0].MED == 5
		}))
		routes[17].MED = 0
		c.call("SetRoutes", []bgp.Route{})
		timeUntil(t, f, time.Now(), "no routes", count(0))
	}
	c.call("SetRoutes", routes)
	timeUntil(t, f, time.Now(), "all routes", count(len(routes)))
	c.call("SetPolicies", rejectEach(routes[:100]))
	timeUntil(t, f, time.Now(), "refused routes", count(len(routes)-100))
	var counts []time.Duration // of announced routes: gobgp applies all policies to all of them
	for range 20 {
		start := time.Now()
		if s, err := c.session("10.0.0.2"); err != nil || s.Sent != len(routes)-100 {
			t.Errorf("session: %+v, %v", s, err)
		}
		counts = append(counts, time.Since(start))
	}
	slices.Sort(counts)
	if t.Logf("sessions with 100 policies: %v", counts); counts[len(counts)/2] > counts[len(counts)-1]/4 {
		t.Error("routes are counted again although nothing has changed")
	}
	checkMedian(t, "10,000 routes", 5*time.Second, all)
	checkMedian(t, "one of them", time.Second, one)
	checkMedian(t, "SetRoutes that changes one of them", 200*ms, calls)
}

// rejectEach returns a policy for each route, which keeps it from all neighbors.
func rejectEach(routes []bgp.Route) (p Policies) {
	app := bgp.Application{Neighbor: bgp.AllNeighbors}
	for i, r := range routes {
		name := strconv.Itoa(i)
		p.Sets = append(p.Sets, bgp.DefinedSet{Type: bgp.PrefixSet, Name: name, Prefixes: []bgp.PrefixRule{{Prefix: r.Prefix.String()}}})
		p.Policies = append(p.Policies, bgp.Policy{Name: name, Statements: []bgp.Statement{{
			Name: "no", Conditions: bgp.Conditions{Prefix: bgp.SetMatch{Set: name}}, Actions: bgp.Actions{Disposition: "reject-route"},
		}}})
		app.Policies = append(app.Policies, name)
	}
	p.Apps = []bgp.Application{app}
	return p
}
