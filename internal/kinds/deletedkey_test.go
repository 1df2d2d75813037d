package kinds

import "testing"

// TestDeletedKey checks that a DELETE finds objects whose keys have an address in whatever form its
// path has.
func TestDeletedKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind     Any
		name     string
		expected string
	}{
		{SessionFlow(), "user1/2001:DB8:0::7", "user1/2001:db8::7"},
		{SessionFlow(), "2001:DB8::1/192.168.33.1", "2001:DB8::1/192.168.33.1"}, // the first part is a name
		{SessionFlow(), "user1/other", "user1/other"},
		{BGPNeighbor(), "2001:0DB8::7", "2001:db8::7"},
		{BGPApplication(), "2001:0DB8::7/import", "2001:db8::7/import"},
	} {
		if got := c.kind.DeletedKey(c.name, nil); got != c.expected {
			t.Errorf("DELETE of %q names %q, want %q", c.name, got, c.expected)
		}
	}
}
