package cluster_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"loxilb/test/await"
)

// awaitSessions waits until the router spreads packets over this many nodes, and has all other
// routes.
func (f *fleet) awaitSessions(nodes int) {
	f.t.Helper()
	await.NoError(f.t, patience, func() error {
		for _, is6 := range []bool{false, true} {
			hops, err := f.hops(is6)
			if err != nil {
				return err
			}
			if want := f.wantedHops(is6, nodes); !maps.Equal(hops, want) {
				return fmt.Errorf("the router has %v, want %v", hops, want)
			}
		}
		return nil
	})
}

// wantedHops returns the number of next hops to each destination while the router spreads packets
// over this many nodes.
func (f *fleet) wantedHops(is6 bool, nodes int) map[string]int {
	if f.store {
		return map[string]int{vip(is6, "dsr"): nodes}
	}
	want := map[string]int{vip(is6, "default"): 1, prefix(is6, clientsOfDefault, 0).Masked().String(): 1}
	for _, mode := range []string{"onearm", "fullnat", "dsr"} {
		want[vip(is6, mode)] = nodes
	}
	for i := range fleetSize {
		want[sources(is6, i+1)] = 1
	}
	return want
}

// awaitBFD waits until BFD watches all sessions: it begins after a session is established.
func (f *fleet) awaitBFD() {
	f.t.Helper()
	await.NoError(f.t, patience, func() error {
		out, err := f.frr.Ask("bfdd", "show bfd peers json")
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

// sessionsLost returns how often the router has lost a BFD session. A node that is silenced loses
// two; more are due to processes that got no CPU for 300 ms.
func (f *fleet) sessionsLost() (sum int) {
	f.t.Helper()
	out, err := f.frr.Ask("bfdd", "show bfd peers counters json")
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

// hops returns the number of next hops to each destination that the router has by BGP.
func (f *fleet) hops(is6 bool) (map[string]int, error) {
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
