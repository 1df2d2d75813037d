package speaker

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"loxilb/internal/lb/bgp"
	"loxilb/test/await"
	"loxilb/test/netnstest/labtest"
)

// seed repeats a random test.
var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of random tests")

// chaosTime is how long TestChaos changes things.
const chaosTime = 8 * time.Second

// TestChaos changes neighbors, routes, policies and the link at random, from several goroutines,
// and checks that FRR has what is wanted in the end, and that nothing is left.
func TestChaos(t *testing.T) {
	t.Parallel()
	t.Logf("-seed=%d", *seed)
	l := newLink(t)
	f := l.frr(t, nodeASN, "bfd 3 100 100")
	c := startChild(t, l.node)
	before := c.usage()
	all := manyRoutes(50)
	var tasks sync.WaitGroup
	for worker := range uint64(3) {
		tasks.Go(func() {
			r := rand.New(rand.NewPCG(*seed, worker))
			for end := time.Now().Add(chaosTime); time.Now().Before(end); {
				if err := c.changeRandomly(r, all); err != nil {
					t.Errorf("-seed=%d: %v", *seed, err)
					return
				}
			}
		})
	}
	for range 3 {
		labtest.Run(t, l.node, "ip", "link", "set", "eth0", "down")
		labtest.Run(t, l.node, "ip", "link", "set", "eth0", "up")
		await.Steady(t, chaosTime/4, func() error { return nil })
	}
	tasks.Wait()
	c.call("SetPolicies", Policies{})
	c.call("SetRoutes", all[:2])
	n := neighbor("10.0.0.2")
	n.BFD = bgp.BFD{Interval: 100 * ms}
	c.call("SetNeighbor", n)
	for _, key := range []string{"2001:db8::2", "10.0.0.77"} {
		c.call("DeleteNeighbor", key)
	}
	c.call("Start", bgp.Speaker{ASN: nodeASN})
	awaitPrefixes(t, f, all[0].Prefix.String(), all[1].Prefix.String())
	bfdUp(t, c, "10.0.0.2")
	c.call("Stop", "test ends")
	await.NoError(t, testTimeout, func() error {
		if after := c.usage(); after.Goroutines > before.Goroutines+2 {
			return fmt.Errorf("goroutines: %d before, %d after", before.Goroutines, after.Goroutines)
		}
		return nil
	})
}

// changeRandomly changes something at random.
func (c *child) changeRandomly(r *rand.Rand, all []bgp.Route) error {
	addrs := []string{"10.0.0.2", "2001:db8::2", "10.0.0.77"} // the last one does not exist
	addr := addrs[r.IntN(len(addrs))]
	switch r.IntN(12) {
	case 0, 1, 2:
		n := neighbor(addr)
		n.BFD.Interval = time.Duration(r.IntN(2)) * 100 * ms
		n.Passive = r.IntN(2) == 0
		if r.IntN(4) == 0 {
			n.Password = "wrong"
		}
		if r.IntN(4) == 0 {
			n.ASN = 65099
		}
		return c.try("SetNeighbor", n)
	case 3, 4:
		return c.try("DeleteNeighbor", addr)
	case 5:
		return c.try("Stop", []string{"", "chaos"}[r.IntN(2)])
	case 6, 7:
		g := bgp.Speaker{ASN: nodeASN, GracefulRestart: time.Duration(r.IntN(2)) * time.Minute, Install: r.IntN(2) == 0}
		return c.try("Start", g)
	case 8:
		return c.try("SetPolicies", Policies{Apps: []bgp.Application{{Neighbor: addr, Reject: r.IntN(2) == 0}}})
	case 9:
		c.sessions()
		return nil
	default:
		routes := append([]bgp.Route(nil), all[:r.IntN(len(all))+1]...)
		for i := range routes {
			routes[i].Prepend = uint8(r.IntN(3))
			routes[i].MED = uint32(r.IntN(3))
		}
		return c.try("SetRoutes", routes)
	}
}
