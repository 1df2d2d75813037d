package cluster_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"loxilb/test/await"
)

// awaitNextHops waits until the router spreads packets over the given number of nodes, and has all
// other routes.
func (f *fleet) awaitNextHops(nodes int) {
	f.t.Helper()
	await.NoError(f.t, patience, func() error {
		for _, is6 := range []bool{false, true} {
			hops, err := f.nextHops(is6)
			if err != nil {
				return err
			}
			if want := f.wantedNextHops(is6, nodes); !maps.Equal(hops, want) {
				return fmt.Errorf("the router has %v, want %v", hops, want)
			}
		}
		return nil
	})
}

// wantedNextHops returns the number of next hops to each destination while the router spreads
// packets over the given number of nodes.
func (f *fleet) wantedNextHops(is6 bool, nodes int) map[string]int {
	if f.useEtcd {
		return map[string]int{vip(is6, "dsr"): nodes}
	}
	want := map[string]int{vip(is6, "default"): 1, prefix(is6, defaultModeNetwork, 0).Masked().String(): 1}
	for _, mode := range []string{"onearm", "fullnat", "dsr"} {
		want[vip(is6, mode)] = nodes
	}
	for i := range fleetSize {
		want[sourcePrefix(is6, i+1)] = 1
	}
	return want
}

// awaitBFD waits until BFD monitors all BGP sessions: it starts after a session is established.
func (f *fleet) awaitBFD() {
	f.t.Helper()
	await.NoError(f.t, patience, func() error {
		out, err := f.frr.Query("bfdd", "show bfd peers json")
		if err != nil {
			return err
		}
		var peers []struct{ Peer, Status string }
		if err := json.Unmarshal([]byte(out), &peers); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		up := 0
		for _, p := range peers {
			if p.Status == "up" {
				up++
			}
		}
		if up != 2*fleetSize {
			return fmt.Errorf("%d sessions of BFD are up: %s", up, out)
		}
		return nil
	})
}

// bfdSessionsLost returns how often the router has lost a BFD session. A silenced node loses two.
// Others are lost if a process gets no CPU for 300 ms.
func (f *fleet) bfdSessionsLost() (sum int) {
	f.t.Helper()
	out, err := f.frr.Query("bfdd", "show bfd peers counters json")
	must(f.t, err)
	var peers []struct {
		Down int `json:"session-down"`
	}
	if err := json.Unmarshal([]byte(out), &peers); err != nil {
		f.t.Fatalf("%v: %s", err, out)
	}
	for _, p := range peers {
		sum += p.Down
	}
	return sum
}

// nextHops returns the number of next hops of each BGP route of the router.
func (f *fleet) nextHops(is6 bool) (map[string]int, error) {
	family := map[bool]string{false: "-4", true: "-6"}[is6]
	out, err := f.router.Run("ip", family, "route", "show", "proto", "bgp")
	hops, to := map[string]int{}, ""
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "\t") {
			to = strings.Fields(line)[0]
		}
		hops[to] += strings.Count(line, "via ")
	}
	return hops, err
}
