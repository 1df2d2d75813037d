package mirror

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAnsweringLinksBelow checks that links below that of a network get its requests, too,
// and that a network without neighbours does not count.
func TestAnsweringLinksBelow(t *testing.T) {
	t.Parallel()
	m := &Mirror{tables: newTables()}
	for _, l := range []Link{
		{Index: 2, Kind: "bond"},
		{Index: 3, Master: 2},
		{Index: 4, Master: 2},
		{Index: 5, Kind: "vlan", PeerIndex: 2},
		{Index: 6, Kind: "macvlan", PeerIndex: 2},
		{Index: 7, Kind: "macvlan", PeerIndex: 3, PeerElsewhere: true},
		{Index: 8, Kind: "bridge"},
		{Index: 9, Master: 8},
		{Index: 10, Kind: "dummy", Flags: unix.IFF_NOARP},
	} {
		l.Up, l.Type = true, unix.ARPHRD_ETHER
		m.tables.links[l.Index] = l
	}
	for link, want := range map[int][]int{2: {2, 3, 4}, 3: {3}, 5: {5}, 6: {2, 3, 4, 6}, 7: {7}, 8: {8}, 10: nil} {
		m.tables.networks = map[network]struct{}{{link: link, prefix: netip.MustParsePrefix("10.0.0.0/24")}: {}}
		if got := m.AnsweringLinks(netip.MustParseAddr("10.0.0.100")); !slices.Equal(got, want) {
			t.Errorf("link %d: %d, want %d", link, got, want)
		}
	}
}
