package ha_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"loxilb/test/await"
	"loxilb/test/net/rig"
)

// TestRestartKeepsRoutes checks that the router keeps its route while a daemon ends by SIGTERM and
// starts again. A drained node stays drained after a restart.
func TestRestartKeepsRoutes(t *testing.T) {
	p := newPair(t)
	n := p.nodes[0]
	n.loxicmd("create lb %s --tcp=80:80 --endpoints=%s:1 --mode=onearm --monitor --bgp", vip, endpointAddr(0))
	p.awaitNextHops(vip, 1)
	ctx, cancel := context.WithCancel(t.Context())
	lost := make(chan string, 1)
	go func() {
		for ctx.Err() == nil {
			if hops := p.nextHops(vip); len(hops) != 1 {
				lost <- fmt.Sprint(hops)
				return
			}
			time.Sleep(time.Millisecond)
		}
		lost <- ""
	}()
	n.Stop()
	must(t, n.Start(t.Context()))
	await.NoError(t, patience, func() error {
		if s, err := p.frr.Neighbor(n.addr); err != nil || s.State != "Established" || s.Established < 2 {
			return fmt.Errorf("%+v, %w", s, err)
		}
		return nil
	})
	await.Steady(t, time.Second, func() error { // the router removes stale routes at End-of-RIB
		select {
		case hops := <-lost:
			return fmt.Errorf("during the restart, the router had the next hops %s", hops)
		default:
			return nil
		}
	})
	cancel()
	if hops := <-lost; hops != "" {
		t.Errorf("during the restart, the router had the next hops %s", hops)
	}

	n.loxicmd("node drain --deadline=1s")
	p.awaitNextHops(vip, 0)
	n.Stop()
	short, end := context.WithTimeout(t.Context(), 5*time.Second)
	defer end()
	if err := n.Start(short); err == nil {
		t.Error("a drained node is ready")
	}
	var out string
	await.NoError(t, rig.StartPatience, func() (err error) { // the daemon may still be loading its programs
		out, err = n.Command("get", "node")
		return err
	})
	if !strings.Contains(out, "drained since") {
		t.Errorf("get node prints:\n%s", out)
	}
	if s, err := p.frr.Neighbor(n.addr); err != nil || s.State == "Established" {
		t.Errorf("the session of a drained node is %s, %v", s.State, err)
	}
	n.loxicmd("node resume")
	p.awaitNextHops(vip, 1)
	if out := n.loxicmd("node drain --deadline=1s --exit --wait"); !strings.Contains(out, "drained; the daemon has exited") {
		t.Errorf("node drain --wait prints:\n%s", out)
	}
	if err := n.Wait(); err == nil || !strings.Contains(err.Error(), "exit status 75") {
		t.Errorf("the daemon ended with %v", err)
	}
}
