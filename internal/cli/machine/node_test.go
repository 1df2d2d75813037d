package machine

import (
	"testing"

	v1 "loxilb/api/v1"
)

// TestDescribed checks that numbers are shown only for nodes that have sent them: a node that has
// just connected would seem to have no connections.
func TestDescribed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		node v1.ClusterNode
		want bool
	}{
		"this one":            {v1.ClusterNode{State: "up", Own: true}, true},
		"just connected":      {v1.ClusterNode{State: "up", Exchange: "up"}, false},
		"without connections": {v1.ClusterNode{State: "up", Exchange: "up", Peers: 1}, true},
		"of an earlier build": {v1.ClusterNode{State: "up", Exchange: "up", Connections: 7}, true},
		"by the shared store": {v1.ClusterNode{State: "up"}, true},
		"away":                {v1.ClusterNode{State: "away", Exchange: "down", Connections: 7}, false},
	} {
		if got := isDescribed(&c.node); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
