package netdev

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestRemove checks that nothing of any loxilb process is left.
//
// P19
func TestRemove(t *testing.T) {
	t.Parallel()
	a, _ := pair(t)
	n := openHost(t, a)
	stop := startRun(t, n, newRecorder())
	setVIPs(t, n, "20.20.20.1", "10.1.0.50", "2001:db8:1::50")
	n.Neighbours().Set(slices.Values(ips("10.1.0.2", "2001:db8:1::2")))
	neighbours := func() string { return run(t, a, "ip", "neigh", "show") }
	eventually(t, func() error {
		if forwarding(t, a) != "010010" || strings.Count(neighbours(), "managed") != 2 {
			return errors.New("not set up yet")
		}
		return nil
	})
	stop()
	if err := openHost(t, a).Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantLocations(t, a, map[string]string{"20.20.20.1": "", "10.1.0.50": "", "2001:db8:1::50": "", "10.1.0.1": "eth0"})
	if got := forwarding(t, a); got != "000000" {
		t.Errorf("forwarding is %s", got)
	}
	if out := neighbours(); strings.Contains(out, "managed") {
		t.Errorf("still managed: %s", out)
	}
}
