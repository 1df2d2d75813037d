package tables

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// fullService returns service number n with rows in each map; a larger size has more rows.
func fullService(n, size int) Change {
	t := table(n, 1+size)
	t.Key.Kind = uint8(bpf.TcServiceKindSERVICE_RANGE)
	t.PortMax = uint16(90 + 10*size)
	t.Flags = serviceEgress
	t.MSS, t.Idle, t.Persist = uint16(1400+size), time.Duration(size)*time.Minute, time.Duration(size)*time.Hour
	for i := range byte(size) {
		t.Secondary = append(t.Secondary, bpf.Addr(netip.AddrFrom4([4]byte{30, 0, byte(n), i})))
		t.SNAT = append(t.SNAT, bpf.Addr(netip.AddrFrom4([4]byte{40, 0, byte(size), i})))
		t.Sources = append(t.Sources, netip.PrefixFrom(netip.AddrFrom4([4]byte{50, 0, byte(n), i}), 32))
		if i > 0 {
			t.Denied = append(t.Denied, netip.PrefixFrom(netip.AddrFrom4([4]byte{50, 1, byte(n), i}), 32))
		}
	}
	for i := range t.Endpoints {
		e := &t.Endpoints[i]
		e.Addr = bpf.Addr(netip.AddrFrom4([4]byte{10, byte(n), 0, byte(i)}))
		e.Shift, e.CurrentWeight, e.Source = size > 1, uint32(size), bpf.Addr(netip.AddrFrom4([4]byte{60, 0, 0, byte(size)}))
	}
	return Change{Key: t.Key, Table: t}
}

// contents returns all rows in use of the services' maps as text, and the variables of the
// programs.
func contents(t testing.TB, d *testTables) map[string]string {
	t.Helper()
	out := map[string]string{"dump": dump(t, d)}
	for name, m := range map[string]*ebpf.Map{
		"services": d.maps.Services, "vips": d.maps.Vips, "ranges": d.maps.ServiceRanges, "sources": d.maps.AllowedSources,
		"snat": d.maps.SnatSources, "egress": d.arrays.EgressEndpoints.Table(),
	} {
		if m == nil {
			continue
		}
		it := m.Iterate()
		var key, value []byte
		for it.Next(&key, &value) {
			out[fmt.Sprintf("%s %x", name, key)] = fmt.Sprintf("%x", value)
		}
		if err := it.Err(); err != nil {
			t.Fatal(err)
		}
	}
	for name, m := range map[string]*ebpf.Map{"idle": d.maps.IdleTimeouts, "persist": d.maps.PersistTimeouts, "mss": d.maps.MssLimits} {
		for _, s := range d.services {
			var n uint32
			if err := m.Lookup(s.id, &n); err != nil {
				t.Fatal(err)
			}
			out[fmt.Sprintf("%s %s", name, s.key)] = fmt.Sprint(n)
		}
	}
	for id := range endpointsByID(d) {
		var row bpf.TcEndpoint
		if err := d.arrays.Endpoints.Lookup(id, &row); err != nil {
			t.Fatal(err)
		}
		out[fmt.Sprintf("endpoint %d", id)] = fmt.Sprintf("%+v", row)
	}
	for name, v := range map[string]*ebpf.Variable{
		"ranged": d.vars.RangeServices, "marked": d.vars.MarkedServices, "hosts": d.vars.HostServices,
		"clamped": d.vars.MssServices, "egress": d.vars.EgressCount,
	} {
		var n uint32
		if err := v.Get(&n); err != nil {
			t.Fatal(err)
		}
		out["count "+name] = fmt.Sprint(n)
	}
	return out
}

// fillUp replaces a map by a full one with the same rows, and returns a function that restores it.
func fillUp(t testing.TB, place **ebpf.Map) (back func()) {
	t.Helper()
	was := *place
	rows := map[string][]byte{}
	it := was.Iterate()
	var key, value []byte
	for it.Next(&key, &value) {
		rows[string(key)] = append([]byte(nil), value...)
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	info, err := was.Info()
	if err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: was.Type(), KeySize: was.KeySize(), ValueSize: was.ValueSize(), Flags: info.Flags, MaxEntries: uint32(len(rows)),
	})
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range rows {
		if err := m.Put([]byte(k), v); err != nil {
			t.Fatal(err)
		}
	}
	*place = m
	return func() {
		*place = was
		m.Close()
	}
}

// TestFullMapChangesNothing checks for each map that if it has no room for a change, the service
// and all others are unchanged in every map and in memory. Once there is room, the same change
// succeeds.
//
// P8 A change for which the data path has no room changes nothing, and is applied once there is
// room
func TestFullMapChangesNothing(t *testing.T) {
	t.Parallel()
	d, fresh := load(t), load(t)
	empty := contents(t, fresh)
	if err := d.arrays.EgressEndpoints.Make(); err != nil {
		t.Fatal(err)
	}
	for name, place := range map[string]**ebpf.Map{
		"services": &d.maps.Services, "vips": &d.maps.Vips, "ranges": &d.maps.ServiceRanges, "sources": &d.maps.AllowedSources,
		"snat": &d.maps.SnatSources, "egress": &d.arrays.EgressEndpoints.Segments()[0],
	} {
		for what, change := range map[string]Change{"update": fullService(1, 3), "new": fullService(2, 1)} {
			t.Run(name+", "+what, func(t *testing.T) {
				apply(t, d, fullService(1, 1), fullService(3, 2))
				fullMapChangesNothing(t, d, place, change)
				apply(t, fresh, fullService(1, 1), fullService(3, 2), change)
				sweep(t, d)
				sweep(t, fresh)
				if diff := cmp.Diff(dump(t, fresh), dump(t, d)); diff != "" {
					t.Errorf("applied after a failure: -want +got\n%s", diff)
				}
				for _, w := range []*testTables{d, fresh} {
					apply(t, w, Change{Key: fullService(1, 1).Key}, Change{Key: fullService(2, 1).Key}, Change{Key: fullService(3, 1).Key})
					sweep(t, w)
					wantEmpty(t, w)
					if diff := cmp.Diff(empty, contents(t, w)); diff != "" {
						t.Errorf("left after all were deleted: %s", diff)
					}
				}
			})
		}
	}
}

func fullMapChangesNothing(t *testing.T, d *testTables, place **ebpf.Map, change Change) {
	t.Helper()
	before, counts := contents(t, d), d.counts
	back := fillUp(t, place)
	if err := d.Apply([]Change{change})[0]; !errors.Is(err, ErrFull) {
		t.Errorf("got %v, want the error ErrFull", err)
	}
	sweep(t, d) // frees the rows that it was given
	if diff := cmp.Diff(before, contents(t, d)); diff != "" {
		t.Errorf("a change that failed changed something: -before +after\n%s", diff)
	}
	wantIndex(t, d)
	if d.counts != counts {
		t.Errorf("counts %+v, before %+v", d.counts, counts)
	}
	back()
	apply(t, d, change)
	wantIndex(t, d)
}

// TestFullTakesNothing checks that a service that does not fit takes no rows that smaller services
// need, and can be applied once there is room.
//
// P8
func TestFullTakesNothing(t *testing.T) {
	t.Parallel()
	d := load(t)
	apply(t, d, named(1, 2))
	d.endpointIDs = rows.NewIDs(5, d.now)
	for id := range endpointsByID(d) {
		d.endpointIDs.Take(id)
	}
	many := Change{Key: serviceKey(2), Table: table(2, 4)}
	for range 3 {
		if err := d.Apply([]Change{many})[0]; !errors.Is(err, ErrFull) {
			t.Fatalf("got %v, want the error ErrFull", err)
		}
	}
	apply(t, d, Change{Key: serviceKey(3), Table: table(3, 3)})
	apply(t, d, Change{Key: serviceKey(3)})
	sweep(t, d)
	if err := d.Apply([]Change{many})[0]; !errors.Is(err, ErrFull) { // the rows are quarantined
		t.Fatalf("got %v, want the error ErrFull", err)
	}
	apply(t, d, named(1))
	sweep(t, d)
	skip(d, 2*rows.Quarantine)
	apply(t, d, many)
	wantIndex(t, d)
}
