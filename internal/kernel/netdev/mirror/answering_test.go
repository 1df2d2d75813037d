package mirror

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAnsweringLinksBelow checks that links below the link of a network also get its requests, and
// that a network without neighbours does not count.
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

// TestSilentNeighbours checks that a neighbour that has failed counts as silent while the kernel
// requests it again, also when events were lost meanwhile and all tables are read again: every few
// seconds "problem" and "problem is gone" would fill the log.
func TestSilentNeighbours(t *testing.T) {
	t.Parallel()
	hop := Hop{Link: 2, Via: netip.MustParseAddr("31.31.31.1")}
	for _, tc := range []struct {
		before, now uint16
		want        bool
	}{
		{unix.NUD_FAILED, unix.NUD_INCOMPLETE, true},
		{unix.NUD_FAILED, unix.NUD_FAILED, true},
		{unix.NUD_FAILED, unix.NUD_REACHABLE, false},
		{unix.NUD_REACHABLE, unix.NUD_INCOMPLETE, false},
		{0, unix.NUD_INCOMPLETE, false},
		{unix.NUD_REACHABLE, unix.NUD_FAILED, true},
	} {
		m := &Mirror{tables: newTables()}
		m.tables.neighbours[hop] = neighbour{state: tc.before, silent: tc.before == unix.NUD_FAILED}
		fresh := newTables()
		fresh.neighbours[hop] = neighbour{state: tc.now, silent: tc.now == unix.NUD_FAILED}
		m.tables.adoptNeighbours(fresh)
		if got := m.Neighbour(hop).Silent; got != tc.want {
			t.Errorf("state %#x, then %#x: silent %v, want %v", tc.before, tc.now, got, tc.want)
		}
	}
}
