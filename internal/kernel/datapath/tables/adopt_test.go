package tables

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

// rowsOf returns the id of each endpoint of each service.
func rowsOf(d *testTables) map[string]uint32 {
	out := map[string]uint32{}
	for id, e := range endpointsByID(d) {
		if !e.service.deleted {
			out[e.service.key.String()+" "+e.at().String()] = id
		}
	}
	return out
}

// TestAdopt checks that a restarted process finds services, endpoints and connections as they were,
// and which rows are free.
//
// V191 a restart with pinned maps changes nothing for packets
// P3
func TestAdopt(t *testing.T) {
	d, err := open(loader.Settings{Connections: 2000, PinDir: dptest.PinDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.Close() }()
	apply(t, d, putChanges(0, 200, 7)...)
	apply(t, d, named(1, 2, 3))
	apply(t, d, named(2, 3))                // one endpoint is ending
	apply(t, d, putChanges(150, 190, 3)...) // and more services
	for n := 100; n < 120; n++ {
		apply(t, d, Change{Key: serviceKey(n)})
	}
	dptest.Fill(t, d.c, 500, dptest.Jiffies(t))
	maps, index := dump(t, d), rowsOf(d)
	d = reload(t, d)
	if diff := cmp.Diff(maps, dump(t, d)); diff != "" {
		t.Errorf("the maps changed: %s", diff)
	}
	if diff := cmp.Diff(index, rowsOf(d)); diff != "" {
		t.Errorf("the index changed: %s", diff)
	}
	wantIndex(t, d)
	if entries := len(dptest.Connections(t, d.c)); entries < 1000 {
		t.Errorf("%d entries of 500 connections are left", entries)
	}
	apply(t, d, putChanges(200, 400, 5)...) // uses no row in use
	wantIndex(t, d)
	apply(t, d, putChanges(0, 400, 4)...)
	sweep(t, d)
	wantIndex(t, d)
	fresh := load(t)
	apply(t, fresh, putChanges(0, 400, 4)...)
	if diff := cmp.Diff(dump(t, fresh), dump(t, d)); diff != "" {
		t.Errorf("-fresh +adopted: %s", diff)
	}
}

// TestAdoptHalfDone checks that unfinished changes of a killed process are finished or undone: the
// endpoints of a deleted service, those of one that was not created yet, and counts of VIPs.
func TestAdoptHalfDone(t *testing.T) {
	d, err := open(loader.Settings{Connections: 1024, PinDir: dptest.PinDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.Close() }()
	apply(t, d, putChanges(0, 3, 2)...)
	want := dump(t, d)
	apply(t, d, putChanges(3, 6, 2)...)
	for n := 3; n < 5; n++ {
		if err := d.c.Maps.Services.Delete(serviceKey(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.c.Maps.Services.Delete(serviceKey(5)); err != nil {
		t.Fatal(err)
	}
	if err := d.c.Maps.Vips.Delete(serviceKey(1).Vip); err != nil {
		t.Fatal(err)
	}
	if err := d.c.Maps.Vips.Put(serviceKey(2).Vip, bpf.TcVip{Services: 7}); err != nil {
		t.Fatal(err)
	}
	setActive(t, d, 7, 1) // a connection of service 3
	d = reload(t, d)
	wantIndex(t, d)
	if got := dump(t, d); !strings.Contains(got, "of deleted flags=5") || strings.Contains(got, "of deleted flags=1") {
		t.Errorf("connections of a deleted service would not end:\n%s", got)
	}
	setActive(t, d, 7, 0)
	sweep(t, d)
	if diff := cmp.Diff(want, dump(t, d)); diff != "" {
		t.Errorf("the tables differ (-want +got):\n%s", diff)
	}
	wantIndex(t, d)
}

// TestAdoptSecondary checks that further VIPs survive a restart, and that remains of a killed
// process are removed.
func TestAdoptSecondary(t *testing.T) {
	d, err := open(loader.Settings{Connections: 1024, PinDir: dptest.PinDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.Close() }()
	one, other := table(0, 2), table(1, 2)
	vip := func(n byte) bpf.TcIpAddr { return bpf.Addr(netip.AddrFrom4([4]byte{30, 0, 0, n})) }
	one.Secondary = []bpf.TcIpAddr{vip(1), vip(2)}
	other.Secondary = []bpf.TcIpAddr{vip(3)}
	apply(t, d, Change{Key: one.Key, Table: one}, Change{Key: other.Key, Table: other})
	if err := d.c.Maps.Services.Delete(other.Key); err != nil {
		t.Fatal(err)
	}
	d = reload(t, d)
	have := readMaps(t, d)
	for n, want := range map[byte]bool{1: true, 2: true, 3: false} {
		key := one.Key
		key.Vip = vip(n)
		if row, ok := have.services[key]; ok != want || want && row.Id != have.services[one.Key].Id {
			t.Errorf("%s: got row %+v, %v, want it adopted: %t, with its id", key, row, ok, want)
		}
		if _, ok := have.vips[vip(n)]; ok != want {
			t.Errorf("%s counts as VIP: %v", key, ok)
		}
	}
	one.Secondary = nil
	apply(t, d, Change{Key: one.Key, Table: one})
	if have = readMaps(t, d); len(have.services) != 1 || len(have.vips) != 1 {
		t.Errorf("further VIPs are left: %v", have.services)
	}
	apply(t, d, Change{Key: one.Key})
	sweep(t, d)
	wantEmpty(t, d)
}

// TestAdoptCounters checks that a row that an earlier process has released does not pass its
// counters on to the next owner.
func TestAdoptCounters(t *testing.T) {
	d, err := open(loader.Settings{Connections: 1024, PinDir: dptest.PinDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.Close() }()
	apply(t, d, putChanges(0, 10, 3)...)
	traffic := make([]bpf.TcEndpointTraffic, ebpf.MustPossibleCPU())
	traffic[0] = bpf.TcEndpointTraffic{PacketsIn: 1, BytesIn: 2, PacketsOut: 3, BytesOut: 4}
	for id := range uint32(30) {
		setActive(t, d, id, 0)
		if err := d.c.EndpointTraffics.Put(id, traffic); err != nil {
			t.Fatal(err)
		}
		if err := d.c.Maps.ServiceStates.Put(id/3, bpf.TcServiceState{Next: 1, Refused: [report.RefusalReasons]uint64{report.NoEndpoint: 2, report.ConntrackFull: 3}}); err != nil {
			t.Fatal(err)
		}
	}
	for n := 1; n < 10; n++ {
		apply(t, d, Change{Key: serviceKey(n)})
	}
	sweep(t, d)
	d = reload(t, d)
	apply(t, d, putChanges(20, 40, 3)...)
	for n := 20; n < 40; n++ {
		stats, ok := d.ServiceStats(serviceKey(n))
		if !ok || stats.Connections+stats.In.Packets+stats.Out.Bytes+stats.Refusals.Sum() != 0 {
			t.Errorf("service %d: %+v", n, stats)
		}
	}
	stats, ok := d.ServiceStats(serviceKey(0))
	if !ok || stats.Connections != 15 || stats.In.Packets != 3 || stats.Out.Bytes != 12 || stats.Refusals[report.NoEndpoint] != 2 || stats.Refusals[report.ConntrackFull] != 3 {
		t.Errorf("service 0 has lost counters: %+v", stats)
	}
}

// TestAdoptRemovedCounters checks that counts of removed endpoints stay with their service over a
// restart, and are not passed on to the next service in the row.
func TestAdoptRemovedCounters(t *testing.T) {
	d, err := open(loader.Settings{Connections: 1024, PinDir: dptest.PinDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.Close() }()
	connections := func() uint64 {
		t.Helper()
		stats, ok := d.ServiceStats(serviceKey(1))
		if !ok {
			t.Fatal("the service is gone")
		}
		return stats.Connections
	}
	want := uint64(0)
	for host := byte(1); host < 5; host++ {
		apply(t, d, named(host))
		setActive(t, d, ids4(d)[host], 0) // five connections, all ended
		want += 5
		if host%2 == 0 {
			d = reload(t, d)
			apply(t, d, named(host))
		}
		sweep(t, d) // removes the previous endpoint
		if n := connections(); n != want {
			t.Errorf("%d connections are counted, want %d", n, want)
		}
	}
	apply(t, d, Change{Key: serviceKey(1)})
	if err := d.c.Maps.ServiceStates.Put(uint32(0), bpf.TcServiceState{Next: want}); err != nil { // as packets do
		t.Fatal(err)
	}
	sweep(t, d)
	d = reload(t, d)
	apply(t, d, named(1))
	if n := connections(); n != 0 {
		t.Errorf("a new service begins with %d connections", n)
	}
}

// TestSameTableStays checks that a slot table that already has the requested contents is not moved,
// by the same process or the next one. Another order is another table.
func TestSameTableStays(t *testing.T) {
	t.Parallel()
	d, err := open(loader.Settings{Connections: 1024, PinDir: dptest.PinDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.Close() }()
	change := putChanges(1, 2, 40)[0]
	at := func() rows.Range {
		apply(t, d, change)
		return d.services[change.Key].slots()
	}
	first := at()
	if got := at(); got != first {
		t.Errorf("applied again: %+v, before %+v", got, first)
	}
	d = reload(t, d)
	if got := at(); got != first {
		t.Errorf("applied by the next process: %+v, before %+v", got, first)
	}
	slots := change.Table.Slots
	slots[0], slots[1] = slots[1], slots[0]
	if got := at(); got == first {
		t.Errorf("another order is where the first one was: %+v", got)
	}
}
