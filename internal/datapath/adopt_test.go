package datapath

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/datapath/pins"
)

// pinDir is a folder of the test's own in the BPF file system, mounted if need be.
func pinDir(t testing.TB) string {
	t.Helper()
	root, err := pins.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(root, "loxilb-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// reload closes a data path and loads it again from its pins.
func reload(t testing.TB, d *Datapath) *Datapath {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Load(d.cfg)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// rowsOf says which id each endpoint of each service has.
func rowsOf(d *Datapath) map[string]uint32 {
	out := map[string]uint32{}
	for id, e := range d.tables.endpoints {
		if !e.service.deleted {
			out[e.service.key.String()+" "+e.at.String()] = id
		}
	}
	return out
}

// TestAdopt: a restarted process finds services, endpoints and connections as they were, and knows what is free.
//
// V191 a restart with pinned maps changes nothing that packets see
func TestAdopt(t *testing.T) {
	d, err := Load(Config{Connections: 2000, PinDir: pinDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.Close() }()
	apply(t, d, puts(0, 200, 7)...)
	apply(t, d, named(1, 2, 3))
	apply(t, d, named(2, 3))          // one is ending
	apply(t, d, puts(150, 190, 3)...) // and more
	for n := 100; n < 120; n++ {
		apply(t, d, Change{Key: serviceKey(n)})
	}
	fill(t, d, 500, jiffiesNow(t))
	maps, books := dump(t, d), rowsOf(d)
	d = reload(t, d)
	if diff := cmp.Diff(maps, dump(t, d)); diff != "" {
		t.Errorf("the maps changed: %s", diff)
	}
	if diff := cmp.Diff(books, rowsOf(d)); diff != "" {
		t.Errorf("the books changed: %s", diff)
	}
	wantBooks(t, d)
	entries := 0
	if err := eachBatch(d.obj.Connections, everything, func(k []bpf.TcConnectionKey, _ []bpf.TcConnection) { entries += len(k) }); err != nil {
		t.Fatal(err)
	}
	if entries < 1000 {
		t.Errorf("%d entries of 500 connections are left", entries)
	}
	apply(t, d, puts(200, 400, 5)...) // takes nothing that is in use
	wantBooks(t, d)
	apply(t, d, puts(0, 400, 4)...)
	sweep(t, d)
	wantBooks(t, d)
	fresh := load(t)
	apply(t, fresh, puts(0, 400, 4)...)
	if diff := cmp.Diff(dump(t, fresh), dump(t, d)); diff != "" {
		t.Errorf("-fresh +adopted: %s", diff)
	}
}

// TestAdoptHalfDone: what a killed process had begun is finished or undone: the endpoints of a service that it deleted,
// those of one that it had not made yet, and counts of VIPs.
func TestAdoptHalfDone(t *testing.T) {
	d, err := Load(Config{Connections: 1024, PinDir: pinDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.Close() }()
	apply(t, d, puts(0, 3, 2)...)
	want := dump(t, d)
	apply(t, d, puts(3, 6, 2)...)
	for n := 3; n < 5; n++ {
		if err := d.obj.Services.Delete(serviceKey(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.obj.Services.Delete(serviceKey(5)); err != nil {
		t.Fatal(err)
	}
	if err := d.obj.Vips.Delete(serviceKey(1).Vip); err != nil {
		t.Fatal(err)
	}
	if err := d.obj.Vips.Put(serviceKey(2).Vip, bpf.TcVip{Services: 7}); err != nil {
		t.Fatal(err)
	}
	setActive(t, d, 7, 1) // a connection of service 3
	d = reload(t, d)
	wantBooks(t, d)
	if got := dump(t, d); !strings.Contains(got, "of deleted flags=7") || strings.Contains(got, "of deleted flags=1") {
		t.Errorf("connections of a deleted service would not be ended:\n%s", got)
	}
	setActive(t, d, 7, 0)
	sweep(t, d)
	if diff := cmp.Diff(want, dump(t, d)); diff != "" {
		t.Error(diff)
	}
	wantBooks(t, d)
}

// TestAdoptSecondary: further VIPs outlive a restart, and those that a killed process left behind go.
func TestAdoptSecondary(t *testing.T) {
	d, err := Load(Config{Connections: 1024, PinDir: pinDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.Close() }()
	one, other := table(0, 2), table(1, 2)
	vip := func(n byte) bpf.TcIpAddr { return bpf.Addr(netip.AddrFrom4([4]byte{30, 0, 0, n})) }
	one.Secondary = []bpf.TcIpAddr{vip(1), vip(2)}
	other.Secondary = []bpf.TcIpAddr{vip(3)}
	apply(t, d, Change{Key: one.Key, Table: one}, Change{Key: other.Key, Table: other})
	if err := d.obj.Services.Delete(other.Key); err != nil {
		t.Fatal(err)
	}
	d = reload(t, d)
	rows := readMaps(t, d)
	for n, want := range map[byte]bool{1: true, 2: true, 3: false} {
		key := one.Key
		key.Vip = vip(n)
		if row, ok := rows.services[key]; ok != want || want && row.Id != rows.services[one.Key].Id {
			t.Errorf("%s: %+v, %v", key, row, ok)
		}
		if _, ok := rows.vips[vip(n)]; ok != want {
			t.Errorf("%s counts as VIP: %v", key, ok)
		}
	}
	one.Secondary = nil
	apply(t, d, Change{Key: one.Key, Table: one})
	if rows = readMaps(t, d); len(rows.services) != 1 || len(rows.vips) != 1 {
		t.Errorf("further VIPs are left: %v", rows.services)
	}
	apply(t, d, Change{Key: one.Key})
	sweep(t, d)
	wantEmpty(t, d)
}

// TestAdoptCounters: a row that an earlier process used and gave up does not hand its counters to the next owner.
func TestAdoptCounters(t *testing.T) {
	d, err := Load(Config{Connections: 1024, PinDir: pinDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.Close() }()
	apply(t, d, puts(0, 10, 3)...)
	traffic := make([]bpf.TcEndpointTraffic, ebpf.MustPossibleCPU())
	traffic[0] = bpf.TcEndpointTraffic{PacketsIn: 1, BytesIn: 2, PacketsOut: 3, BytesOut: 4}
	for id := range uint32(30) {
		setActive(t, d, id, 0)
		if err := d.obj.EndpointTraffics.Put(id, traffic); err != nil {
			t.Fatal(err)
		}
		if err := d.obj.ServiceStates.Put(id/3, bpf.TcServiceState{Next: 1, NoEndpoint: 2, Refused: 3}); err != nil {
			t.Fatal(err)
		}
	}
	for n := 1; n < 10; n++ {
		apply(t, d, Change{Key: serviceKey(n)})
	}
	sweep(t, d)
	d = reload(t, d)
	apply(t, d, puts(20, 40, 3)...)
	for n := 20; n < 40; n++ {
		stats, ok := d.ServiceStats(serviceKey(n))
		if !ok || stats.Connections+stats.In.Packets+stats.Out.Bytes+stats.NoEndpoint+stats.Refused != 0 {
			t.Errorf("service %d: %+v", n, stats)
		}
	}
	stats, ok := d.ServiceStats(serviceKey(0))
	if !ok || stats.Connections != 15 || stats.In.Packets != 3 || stats.Out.Bytes != 12 || stats.NoEndpoint != 2 || stats.Refused != 3 {
		t.Errorf("service 0 has lost counters: %+v", stats)
	}
}

// TestAdoptRetired: what endpoints that are gone have counted stays with their service over a restart, and is not
// handed to the next service of the same row.
func TestAdoptRetired(t *testing.T) {
	d, err := Load(Config{Connections: 1024, PinDir: pinDir(t)})
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
		setActive(t, d, ids4(d)[host], 0) // five connections, all of them over
		want += 5
		if host%2 == 0 {
			d = reload(t, d)
			apply(t, d, named(host))
		}
		sweep(t, d) // retires the one before
		if n := connections(); n != want {
			t.Errorf("%d connections are counted, want %d", n, want)
		}
	}
	apply(t, d, Change{Key: serviceKey(1)})
	if err := d.obj.ServiceStates.Put(uint32(0), bpf.TcServiceState{Next: want}); err != nil { // as packets do
		t.Fatal(err)
	}
	sweep(t, d)
	d = reload(t, d)
	apply(t, d, named(1))
	if n := connections(); n != 0 {
		t.Errorf("a new service begins with %d connections", n)
	}
}

// TestAnotherLayout: maps of another version are refused with a sentence that says what mends it, and are left as they
// are.
//
// V192 maps of another layout are refused, and said to be
func TestAnotherLayout(t *testing.T) {
	dir := pinDir(t)
	if err := os.MkdirAll(filepath.Join(dir, "maps"), 0o700); err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "services", Type: ebpf.Hash, KeySize: 20, ValueSize: 16, MaxEntries: 65536, Flags: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	path := filepath.Join(dir, "maps", "services")
	if err := m.Pin(path); err != nil {
		t.Fatal(err)
	}
	_, err = Load(Config{Connections: 1024, PinDir: dir})
	if !errors.Is(err, pins.ErrLayout) || !strings.Contains(err.Error(), "the pinned maps have another layout; run `loxilb --detach` to remove them (connections end), then start again") {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if err := RemovePins(dir); err != nil {
		t.Fatal(err)
	}
	d, err := Load(Config{Connections: 1024, PinDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestChangedLayout: a map of the same size whose fields have changed places is refused by its name, and left as it is. A
// build that keeps no layouts leaves pins that are adopted.
func TestChangedLayout(t *testing.T) {
	cfg := Config{Connections: 1024, PinDir: pinDir(t)}
	d, err := Load(cfg)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, d, 10, 0)
	d = reload(t, d) // the layouts are the same again
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	spec, err := bpf.LoadTc()
	if err != nil {
		t.Fatal(err)
	}
	changed := spec.Maps["endpoints"]
	fields := changed.Value.(*btf.Struct).Members
	fields[0].Name, fields[1].Name = fields[1].Name, fields[0].Name
	if err := pins.RecordLayouts(cfg.PinDir, map[string]*ebpf.MapSpec{"endpoints": changed}); err != nil {
		t.Fatal(err)
	}
	_, err = Load(cfg)
	const want = "the pinned maps have another layout; run `loxilb --detach` to remove them (connections end), then start again: keys or values of endpoints were"
	if !errors.Is(err, pins.ErrLayout) || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v", err)
	}

	if err := os.Remove(filepath.Join(cfg.PinDir, "layouts")); err != nil {
		t.Fatal(err)
	}
	if d, err = Load(cfg); err != nil {
		t.Fatalf("pins of a build that keeps no layouts: %v", err)
	}
	defer d.Close()
	if err := d.obj.Connections.NextKey(nil, make([]byte, d.obj.Connections.KeySize())); err != nil {
		t.Errorf("the connections are gone: %v", err)
	}
}

// TestTableKeepsItsSize: another size asked for does not cost the connections that there are.
func TestTableKeepsItsSize(t *testing.T) {
	cfg := Config{Connections: 1024, PinDir: pinDir(t)}
	d, err := Load(cfg)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, d, 100, 0)
	d.cfg.Connections = 4096
	d = reload(t, d)
	defer d.Close()
	if _, size := d.Occupancy(); size != 1024 {
		t.Errorf("the table has room for %d", size)
	}
}
