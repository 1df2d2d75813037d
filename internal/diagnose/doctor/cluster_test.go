package doctor

import (
	"strings"
	"testing"
)

// TestRemovedNode checks that the remedy for a node that has left also covers a permanent removal,
// for both reasons that the cluster reports.
func TestRemovedNode(t *testing.T) {
	t.Parallel()
	for why, want := range map[string]string{
		"it has left, and its address is not in --cluster":     "forgotten after a minute",
		"dial tcp 10.0.0.2:22222: connect: connection refused": "loxicmd delete clusternode",
		"dial tcp 10.0.0.2:22222: i/o timeout":                 "loxicmd delete clusternode",
	} {
		if got := remedy(why); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %q", why, got, want)
		}
	}
}
