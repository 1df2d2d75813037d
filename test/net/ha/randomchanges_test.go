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
	randomChanges = 1000
	randomVIPs    = 16
)

// model is the expected state of a node.
type model struct {
	services [randomVIPs]bool // VIP n has endpoint n%2, and is of instance n/8
	down     [2]bool          // by endpoint
	roles    [2]string        // by instance
}

// TestRandomChanges changes services, endpoints, roles and links at random. Afterwards, it compares
// the router's routes and the owners of VIPs with the expected state.
//
// P83 After 1,000 random changes of services, endpoints, links and roles, a router has exactly the
// routes that the nodes can serve.
func TestRandomChanges(t *testing.T) {
	random := rig.Seeded(t)
	p := newPair(t)
	models := [2]model{{roles: [2]string{"NOT_DEFINED", "NOT_DEFINED"}}, {roles: [2]string{"NOT_DEFINED", "NOT_DEFINED"}}}
	began := time.Now()
	for range randomChanges {
		i := random.IntN(2)
		p.changeAtRandom(random, i, &models[i])
	}
	t.Logf("%d changes in %v", randomChanges, time.Since(began).Round(time.Second))
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
		got, err := p.routes()
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("routes are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return err
	})
	t.Logf("the router had the %d final routes after %v", len(want), time.Since(settled).Round(time.Millisecond))
	for i := range models {
		p.wantOwnedVIPs(p.nodes[i], &models[i])
	}
}

func randomVIP(n int) string { return fmt.Sprintf("20.20.20.%d", n+1) }

// changeAtRandom makes a random change to a node, and to its model.
func (p *pair) changeAtRandom(random *rand.Rand, i int, m *model) {
	n := p.nodes[i]
	switch random.IntN(10) {
	case 0, 1, 2, 3:
		v := random.IntN(randomVIPs)
		if m.services[v] = random.IntN(4) > 0; m.services[v] {
			n.loxicmd("create lb %s --tcp=80:80 --endpoints=%s:1 --mode=onearm --monitor --bgp --name=web:i%d", randomVIP(v), endpointAddr(v%2), v/8)
			for e, red := range m.down { // the daemon forgets reports of endpoints that it does not probe
				if e == v%2 && red {
					n.reportState(endpointAddr(e), "red")
				}
			}
		} else {
			n.loxicmd("delete lb %s --tcp=80", randomVIP(v)) // fails if it was deleted before
		}
	case 4, 5, 6:
		e := random.IntN(2)
		if !m.probes(e) {
			return
		}
		m.down[e] = !m.down[e]
		n.reportState(endpointAddr(e), map[bool]string{true: "red", false: "green"}[m.down[e]])
	case 7, 8:
		instance := random.IntN(2)
		m.roles[instance] = []string{"MASTER", "BACKUP", "FAULT", "NOT_DEFINED"}[random.IntN(4)]
		n.loxicmd("set hastate %s --instance=i%d", m.roles[instance], instance)
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

// routes returns the expected routes of a node, in the format of pair.routes.
func (m *model) routes(from string) (list []string) {
	for v, there := range m.services {
		med, announced := map[string]int{"MASTER": 10, "BACKUP": 20, "NOT_DEFINED": 0}[m.roles[v/8]]
		if there && announced && !m.down[v%2] {
			list = append(list, fmt.Sprintf("%s/32 via %s MED %d", randomVIP(v), from, med))
		}
	}
	return list
}

// routes returns the router's routes.
func (p *pair) routes() (list []string, err error) {
	routes, err := p.frr.Routes()
	for prefix, paths := range routes {
		for _, path := range paths {
			list = append(list, fmt.Sprintf("%s via %s MED %d", prefix, path.NextHops[0], path.MED))
		}
	}
	slices.Sort(list)
	return list, err
}

// wantOwnedVIPs waits until a node owns exactly the VIPs of its model.
func (p *pair) wantOwnedVIPs(n *node, m *model) {
	p.t.Helper()
	await.NoError(p.t, patience, func() error {
		out, err := n.host.Run("ip", "-4", "-o", "address", "show", "dev", "lo")
		if err != nil {
			return err
		}
		for v, there := range m.services {
			want := there && (m.roles[v/8] == "MASTER" || m.roles[v/8] == "NOT_DEFINED")
			if got := strings.Contains(out, " "+netip.PrefixFrom(netip.MustParseAddr(randomVIP(v)), 32).String()); got != want {
				return fmt.Errorf("%s owns %s: %t, want %t", n.host.Name, randomVIP(v), got, want)
			}
		}
		return nil
	})
}
