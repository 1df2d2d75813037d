package connections

import (
	"net/netip"
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/tables"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
	"loxilb/test/dptest/programs"
)

// TestListRange checks that a connection to a port of a range is listed with its own port, and with
// the endpoint in the form of the service.
func TestListRange(t *testing.T) {
	t.Parallel()
	d := open(t, loader.Settings{Connections: 1024})
	vip, first := netip.MustParseAddrPort("10.0.0.1:8000"), netip.MustParseAddrPort("10.1.0.1:9000")
	table := bpf.ServiceTable{
		Key: bpf.TcServiceKey{Vip: bpf.Addr(vip.Addr()), Port: bpf.Port(vip.Port()), Protocol: 6}, PortMax: vip.Port() + 3,
		Endpoints: []bpf.EndpointTable{{Addr: bpf.Addr(first.Addr()), Port: bpf.Port(first.Port()), Shift: true}}, Slots: []uint32{0},
	}
	if err := d.tables.Apply([]tables.Change{{Key: table.Key, Table: &table}})[0]; err != nil {
		t.Fatal(err)
	}
	third := netip.AddrPortFrom(first.Addr(), first.Port()+2)
	k := bpf.TcConnectionKey{Protocol: 6, Daddr: bpf.Addr(vip.Addr()), Dport: bpf.Port(vip.Port() + 2)}
	c, ok := d.connection(k, bpf.TcConnection{Daddr: bpf.Addr(third.Addr()), Dport: bpf.Port(third.Port())})
	if !ok || c.Endpoint != third || c.ConfiguredEndpoint != first {
		t.Errorf("%+v, %t: want port %v of %v", c, ok, third, first)
	}
}

// TestPages checks that pages of connections show each connection once while the table does not
// change.
func TestPages(t *testing.T) {
	t.Parallel()
	const n, pageSize = 5000, 997
	d := open(t, loader.Settings{Connections: 2 * n})
	d.stopGrowth()
	dptest.Fill(t, d.shared, n, dptest.Jiffies(t))
	shown := map[[2]netip.AddrPort]int{}
	place, pages := 0, 0
	for pages == 0 || place != 0 {
		count := 0
		next, err := d.ConnectionsFrom(t.Context(), place, report.ConnectionQuery{}, func(c report.Connection) bool {
			if count == pageSize {
				return false
			}
			count++
			shown[[2]netip.AddrPort{c.Src, c.Dst}]++
			return true
		})
		if err != nil || pages > 2*n/pageSize+1 {
			t.Fatalf("page %d from %d: %v", pages, place, err)
		}
		place, pages = next, pages+1
	}
	if len(shown) != 2*n || pages != 2*n/pageSize+1 {
		t.Errorf("%d entries on %d pages, want %d on %d", len(shown), pages, 2*n, 2*n/pageSize+1)
	}
	for c, times := range shown {
		if times != 1 {
			t.Errorf("%v is shown %d times", c, times)
		}
	}
}

// TestListAge checks that each direction has the age of its connection and the time since its last
// packet, whether the table is read or searched.
func TestListAge(t *testing.T) {
	t.Parallel()
	const age = 100 * time.Hour
	d := open(t, loader.Settings{Connections: 1024})
	d.stopGrowth()
	if err := d.newFlows(t)(0); err != nil {
		t.Fatal(err)
	}
	if err := programs.New(d.shared, nil).Age(age); err != nil {
		t.Fatal(err)
	}
	// No sweep runs meanwhile, so the flow still exists.
	for name, sought := range map[string]report.ConnectionQuery{"read": {}, "search": {State: "udp-uni"}} {
		found := 0
		_, err := d.ConnectionsFrom(t.Context(), 0, sought, func(c report.Connection) bool {
			found++
			if c.Age < age || c.Age > age+time.Minute || !c.Reply && (c.Idle < age || c.Idle > age+time.Minute) {
				t.Errorf("%s: %s: age %v, idle %v; want %v", name, c.State, c.Age, c.Idle, age)
			}
			return true
		})
		if err != nil || found == 0 {
			t.Errorf("%s: %d found, %v", name, found, err)
		}
	}
}

// BenchmarkList lists 20 matching connections of a million, by reading the table and by a search:
// when all match, a few, and none.
func BenchmarkList(b *testing.B) {
	const all, few, wanted = 1_000_000, 10, 20
	d := open(b, loader.Settings{Connections: all})
	dptest.Fill(b, d.shared, all, dptest.Jiffies(b))
	at := web(b, d, few, all)
	of := func(e netip.AddrPort) report.ConnectionQuery {
		return report.ConnectionQuery{MatchEndpoint: func(_ string, at netip.AddrPort) bool { return at == e }}
	}
	for _, tc := range []struct {
		name   string
		sought report.ConnectionQuery
		is     func(*report.Connection) bool
	}{
		{"read/all", report.ConnectionQuery{}, func(c *report.Connection) bool { return c.State == "est" }},
		{"read/none", report.ConnectionQuery{}, func(c *report.Connection) bool { return c.State == "fini" }},
		{"search/all", report.ConnectionQuery{State: "est"}, func(c *report.Connection) bool { return c.State == "est" }},
		{"search/none", report.ConnectionQuery{State: "fini"}, func(c *report.Connection) bool { return c.State == "fini" }},
		{"search/few", of(at.busy), func(c *report.Connection) bool { return c.ConfiguredEndpoint == at.busy }},
		{"search/idle", of(at.idle), func(c *report.Connection) bool { return c.ConfiguredEndpoint == at.idle }},
	} {
		b.Run(tc.name, func(b *testing.B) {
			var cpu time.Duration
			for b.Loop() {
				start, count := processTime(), 0
				if _, err := d.ConnectionsFrom(b.Context(), 0, tc.sought, func(c report.Connection) bool {
					if tc.is(&c) {
						count++
					}
					return count < wanted
				}); err != nil {
					b.Fatal(err)
				}
				cpu += processTime() - start
			}
			b.ReportMetric(float64(cpu.Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}
