package connections

import (
	"net/netip"
	"slices"
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/tables"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

// webAt is an endpoint of service web with connections, and one without.
type webAt struct{ busy, idle netip.AddrPort }

// web creates a service and its connections, few of them to its second endpoint.
func web(t testing.TB, d *Table, few, all int) (at webAt) {
	t.Helper()
	vip := netip.MustParseAddrPort("20.0.0.9:80")
	at = webAt{netip.MustParseAddrPort("31.0.0.2:80"), netip.MustParseAddrPort("31.0.0.3:80")}
	table := bpf.ServiceTable{Key: bpf.TcServiceKey{Vip: bpf.Addr(vip.Addr()), Port: bpf.Port(vip.Port()), Protocol: 6}, Name: "web", Slots: []uint32{0}}
	for _, e := range []netip.AddrPort{netip.MustParseAddrPort("31.0.0.1:80"), at.busy, at.idle} {
		table.Endpoints = append(table.Endpoints, bpf.EndpointTable{Addr: bpf.Addr(e.Addr()), Port: bpf.Port(e.Port())})
	}
	if err := d.tables.Apply([]tables.Change{{Key: table.Key, Table: &table}})[0]; err != nil {
		t.Fatal(err)
	}
	d.tables.EachEndpointID(table.Key, func(endpoint int, id uint32) {
		if endpoint != 1 {
			return
		}
		assignEndpoint(t, d, id, few, all)
		if err := d.shared.EndpointStates.Put(id, bpf.TcEndpointState{Connections: uint64(few), Active: int64(few), Tracked: uint64(few)}); err != nil {
			t.Fatal(err)
		}
	})
	return at
}

// TestFind checks that the search finds the right connections in list order, by their positions,
// and that it reads little else.
func TestFind(t *testing.T) {
	t.Parallel()
	const all, few = 20_000, 100
	d := open(t, loader.Settings{Connections: 2 * all})
	d.stopGrowth()
	dptest.Fill(t, d.shared, all, dptest.Jiffies(t))
	at := web(t, d, few, all)
	seen := 0
	err := dptest.ChangeConnections(d.shared.Conntrack, func(_ bpf.TcConnectionKey, c *bpf.TcConnection) bool {
		if seen++; seen%1000 != 0 {
			return false
		}
		c.Flags |= uint8(bpf.TcConnectionFlagCONN_FIN_CLIENT)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	network := netip.MustParsePrefix("10.0.0.1/32")
	for name, c := range map[string]struct {
		sought report.ConnectionQuery
		is     func(*report.Connection) bool
		others int // others that are found, too
	}{
		"state":         {report.ConnectionQuery{State: "fini"}, func(c *report.Connection) bool { return c.State == "fini" }, 0},
		"no such state": {report.ConnectionQuery{State: "udp-est"}, func(*report.Connection) bool { return false }, 0},
		"client": {report.ConnectionQuery{Client: network}, func(c *report.Connection) bool {
			return !c.Reply && network.Contains(c.Src.Addr()) || c.Reply && network.Contains(c.NewDst.Addr())
		}, 0},
		"requests":       {report.ConnectionQuery{Requests: true, State: "fini"}, func(c *report.Connection) bool { return !c.Reply && c.State == "fini" }, 0},
		"other VIP":      {report.ConnectionQuery{VIP: netip.MustParseAddr("20.0.0.9")}, func(*report.Connection) bool { return false }, 0},
		"all of the VIP": {report.ConnectionQuery{VIP: netip.MustParseAddr("20.0.0.1"), Ports: [2]uint16{0x5000, 0x5000}}, func(*report.Connection) bool { return true }, 0},
		"other port":     {report.ConnectionQuery{Ports: [2]uint16{81, 90}}, func(*report.Connection) bool { return false }, 0},
		"endpoint":       {report.ConnectionQuery{Endpoint: netip.MustParseAddr("31.0.0.9")}, func(*report.Connection) bool { return false }, 0},
		"of an endpoint": {
			report.ConnectionQuery{MatchEndpoint: func(s string, of netip.AddrPort) bool { return s == "web" && of == at.busy }},
			func(c *report.Connection) bool { return c.ConfiguredEndpoint == at.busy }, 0,
		},
		"of an idle one": {report.ConnectionQuery{MatchEndpoint: func(_ string, of netip.AddrPort) bool { return of == at.idle }}, func(*report.Connection) bool { return false }, 0},
	} {
		want := d.list(t, report.ConnectionQuery{}, 1<<20, c.is)
		looked := 0
		got := d.list(t, c.sought, 997, func(found *report.Connection) bool {
			looked++
			return c.is(found)
		})
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d found, want %d, or in another order", name, len(got), len(want))
		}
		if most := len(want) + len(want)/997 + 1; looked > most {
			t.Errorf("%s: %d were looked at, want %d at most", name, looked, most)
		}
	}
}

// list lists connections in pages of a size, and fails unless they are those for which is returns
// true. Ages are omitted, since they grow from one list to the next.
func (t *Table) list(tb testing.TB, sought report.ConnectionQuery, size int, is func(*report.Connection) bool) (found []report.Connection) {
	tb.Helper()
	for place := 0; ; {
		left := size
		next, err := t.ConnectionsFrom(tb.Context(), place, sought, func(c report.Connection) bool {
			if left == 0 {
				return false
			}
			if is(&c) {
				c.Age, c.Idle = 0, 0
				found = append(found, c)
				left--
			}
			return true
		})
		if err != nil {
			tb.Fatal(err)
		}
		if place = next; next == 0 {
			return found
		}
	}
}
