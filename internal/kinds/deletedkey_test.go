package kinds_test

import (
	"strings"
	"testing"

	"loxilb/internal/kinds"
)

// TestDeletedKey checks that a DELETE finds an object by any form of the address in its key.
func TestDeletedKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind     kinds.Any
		name     string
		expected string
	}{
		{kinds.SessionFlow(), "user1/2001:DB8:0::7", "user1/2001:db8::7"},
		{kinds.SessionFlow(), "2001:DB8::1/192.168.33.1", "2001:DB8::1/192.168.33.1"}, // the first part is a name
		{kinds.BGPNeighbor(), "2001:0DB8::7", "2001:db8::7"},
		{kinds.BGPNeighbor(), "eth0", "eth0"},
		{kinds.BGPApplication(), "2001:0DB8::7/import", "2001:db8::7/import"},
	} {
		if got, err := c.kind.DeletedKey(c.name, nil); err != nil || got != c.expected {
			t.Errorf("DELETE of %q names %q, %v, want %q", c.name, got, err, c.expected)
		}
	}
	for name, kind := range map[string]kinds.Any{"user1/other": kinds.SessionFlow(), "other": kinds.BFD()} {
		if _, err := kind.DeletedKey(name, nil); err == nil || !strings.Contains(err.Error(), `"other" is not an IP address`) {
			t.Errorf("DELETE of %q: %v", name, err)
		}
	}
}
