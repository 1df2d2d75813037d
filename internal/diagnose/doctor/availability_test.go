package doctor

import (
	"net/netip"
	"testing"
)

// TestWithdrawnAggregate checks that the remedy for a withdrawn prefix is a command that succeeds:
// no service has the first address of an aggregate.
func TestWithdrawnAggregate(t *testing.T) {
	t.Parallel()
	_, m := healthy()
	for prefix, want := range map[string]string{"20.20.20.1/32": "loxicmd describe lb 20.20.20.1", "10.20.1.0/24": "loxicmd get lb -o wide"} {
		m.Facts.Availability.Hidden = []Withdrawn{{netip.MustParsePrefix(prefix), "this node is cut off"}}
		if list, err := announcements(m); err != nil || len(list) != 1 || list[0].Command != want {
			t.Errorf("%s: got %+v, %v, want the command %q", prefix, list, err, want)
		}
	}
}
