package ha_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"loxilb/test/await"
	"loxilb/test/net/rig"
)

const (
	flaps    = 1000
	flapVIPs = 16
)

// model is what a node should announce.
type model struct {
	services [flapVIPs]bool // VIP n has endpoint n%2, and is of instance n/8
	red      [2]bool        // endpoints
	roles    [2]string      // of instances
}

// TestFlaps changes services, endpoints, roles and links at random, and compares the routes of the
// router and the owners of VIPs with the final state.
//
// P83 After 1,000 random changes of services, endpoints, links and roles, a router has exactly the
// routes that the nodes can serve.
func TestFlaps(t *testing.T) {
	random := rig.Seeded(t)
	p := newPair(t)
	models := [2]model{{roles: [2]string{"NOT_DEFINED", "NOT_DEFINED"}}, {roles: [2]string{"NOT_DEFINED", "NOT_DEFINED"}}}
	began := time.Now()
	for range flaps {
		i := random.IntN(2)
		p.flap(random, i, &models[i])
	}
	t.Logf("%d changes in %v", flaps, time.Since(began).Round(time.Second))
	for _, n := range p.nodes { // links may be down
		rig.MustRun(t, p.router, "ip", "link", "set", "dev", n.host.Name, "up")
	}
	var want []string
	for i := range models {
		want = append(want, models[i].routes(p.nodes[i].addr)...)
	}
	slices.Sort(want)
	settled := time.Now()
	await.NoError(t, patience, func() error {
		got, err := p.announced()
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("routes are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return err
	})
	t.Logf("the router had the %d final routes after %v", len(want), time.Since(settled).Round(time.Millisecond))
	for i := range models {
		p.wantOwned(p.nodes[i], &models[i])
	}
}

func flapVIP(n int) string { return fmt.Sprintf("20.20.20.%d", n+1) }

// flap changes one thing.
func (p *pair) flap(random *rand.Rand, i int, m *model) {
	n := p.nodes[i]
	switch random.IntN(10) {
	case 0, 1, 2, 3:
		v := random.IntN(flapVIPs)
		if m.services[v] = random.IntN(4) > 0; m.services[v] {
			n.loxicmd("create lb %s --tcp=80:80 --endpoints=%s:1 --mode=onearm --monitor --bgp --name=web:i%d", flapVIP(v), endpointAddr(v%2), v/8)
			for e, red := range m.red { // a report needs a probed endpoint
				if e == v%2 && red {
					n.hostState(endpointAddr(e), "red")
				}
			}
		} else {
			n.loxicmd("delete lb %s --tcp=80", flapVIP(v)) // it may be gone
		}
	case 4, 5, 6:
		e := random.IntN(2)
		if !m.probes(e) {
			return
		}
		m.red[e] = !m.red[e]
		n.hostState(endpointAddr(e), map[bool]string{true: "red", false: "green"}[m.red[e]])
	case 7, 8:
		one := random.IntN(2)
		m.roles[one] = []string{"MASTER", "BACKUP", "FAULT", "NOT_DEFINED"}[random.IntN(4)]
		n.loxicmd("set hastate %s --instance=i%d", m.roles[one], one)
	case 9:
		rig.MustRun(p.t, p.router, "ip", "link", "set", "dev", n.host.Name, []string{"up", "down"}[random.IntN(2)])
	}
}

// probes reports whether a node probes an endpoint.
func (m *model) probes(endpoint int) bool {
	for v, there := range m.services {
		if there && v%2 == endpoint {
			return true
		}
	}
	return false
}

// routes returns the routes of a node, as announced returns them.
func (m *model) routes(from string) (list []string) {
	for v, there := range m.services {
		med, announced := map[string]int{"MASTER": 10, "BACKUP": 20, "NOT_DEFINED": 0}[m.roles[v/8]]
		if there && announced && !m.red[v%2] {
			list = append(list, fmt.Sprintf("%s/32 via %s MED %d", flapVIP(v), from, med))
		}
	}
	return list
}

// announced returns the routes that the router has.
func (p *pair) announced() (list []string, err error) {
	routes, err := p.frr.Routes()
	for prefix, paths := range routes {
		for _, path := range paths {
			list = append(list, fmt.Sprintf("%s via %s MED %d", prefix, path.NextHops[0], path.MED))
		}
	}
	slices.Sort(list)
	return list, err
}

// wantOwned compares the VIPs that a node owns with those of its roles.
func (p *pair) wantOwned(n *node, m *model) {
	p.t.Helper()
	await.NoError(p.t, patience, func() error {
		out, err := n.host.Run("ip", "-4", "-o", "address", "show", "dev", "lo")
		if err != nil {
			return err
		}
		for v, there := range m.services {
			want := there && (m.roles[v/8] == "MASTER" || m.roles[v/8] == "NOT_DEFINED")
			if got := strings.Contains(out, " "+netip.PrefixFrom(netip.MustParseAddr(flapVIP(v)), 32).String()); got != want {
				return fmt.Errorf("%s owns %s: %t, want %t", n.host.Name, flapVIP(v), got, want)
			}
		}
		return nil
	})
}
