package tables

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"
	"unsafe"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// table returns service number n with this number of its own endpoints, with equal weights.
func table(n, endpoints int) *bpf.ServiceTable {
	t := &bpf.ServiceTable{
		Key:       serviceKey(n),
		Name:      fmt.Sprintf("service-%d", n),
		Endpoints: make([]bpf.EndpointTable, endpoints),
		Slots:     make([]uint32, endpoints),
	}
	for i := range endpoints {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1})
		t.Endpoints[i] = bpf.EndpointTable{Addr: bpf.Addr(a), Port: bpf.Port(uint16(n)), Weight: 1}
		t.Slots[i] = uint32(i)
	}
	return t
}

// serviceKey returns the key of service number n, at a VIP of its own.
func serviceKey(n int) bpf.TcServiceKey {
	vip := netip.AddrFrom4([4]byte{20, byte(n >> 16), byte(n >> 8), byte(n)})
	return bpf.TcServiceKey{Vip: bpf.Addr(vip), Port: bpf.Port(80), Protocol: 6}
}

func putChanges(from, to, endpoints int) []Change {
	changes := make([]Change, 0, to-from)
	for n := from; n < to; n++ {
		t := table(n, endpoints)
		changes = append(changes, Change{Key: t.Key, Table: t})
	}
	return changes
}

func apply(t testing.TB, d *testTables, changes ...Change) time.Duration {
	t.Helper()
	start := time.Now()
	if err := errors.Join(d.Apply(changes)...); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

// TestLimits checks that the maximum number of services and endpoints fits, that one more of each
// is refused and changes nothing, and that one more fits once another is deleted.
func TestLimits(t *testing.T) {
	d := load(t)
	const most = 4096
	var (
		all    = putChanges(0, 1, most)
		fours  = MaxEndpoints - most - 3*(MaxServices-1)
		change = func(n, endpoints int) Change { return putChanges(n, n+1, endpoints)[0] }
	)
	all = append(all, putChanges(1, 1+fours, 4)...)
	all = append(all, putChanges(1+fours, MaxServices, 3)...)
	t.Logf("%d services, %d endpoints: applied in %v", MaxServices, MaxEndpoints, apply(t, d, all...))
	if s, e := len(d.services), len(endpointsByID(d)); s != MaxServices || e != MaxEndpoints {
		t.Fatalf("%d services, %d endpoints", s, e)
	}
	before := readMaps(t, d)
	for what, c := range map[string]Change{"a service": change(MaxServices, 1), "endpoints": change(MaxServices-1, 5)} {
		if err := d.Apply([]Change{c})[0]; !errors.Is(err, ErrFull) {
			t.Errorf("%s more: %v", what, err)
		}
	}
	after := readMaps(t, d)
	if !maps.Equal(before.services, after.services) || !maps.Equal(before.endpoints, after.endpoints) || !maps.Equal(before.vips, after.vips) {
		t.Error("a refused change has an effect")
	}
	apply(t, d, Change{Key: serviceKey(7)})
	sweep(t, d)
	skip(d, 2*rows.Quarantine)
	apply(t, d, change(MaxServices, 4))
	for i := range all {
		all[i].Table = nil
	}
	t.Logf("deleted in %v", apply(t, d, append(all, Change{Key: serviceKey(MaxServices)})...))
	start := time.Now()
	sweep(t, d)
	t.Logf("swept in %v", time.Since(start))
	wantEmpty(t, d)
}

// wantEmpty checks that the maps and the index are empty.
func wantEmpty(t testing.TB, d *testTables) {
	t.Helper()
	if got := dump(t, d); got != "" {
		t.Errorf("left in the maps: %.500s", got)
	}
	if n := len(d.services) + len(endpointsByID(d)) + len(d.ending) + len(d.vips); n > 0 {
		t.Errorf("left in the index: %d", n)
	}
	skip(d, 2*rows.Quarantine)
	if !d.slots.Unused() {
		t.Error("slots are not free")
	}
	for what, i := range map[string]*rows.IDs{"endpoint": &d.endpointIDs, "service": &d.serviceIDs} {
		if n := i.Taken(); n != 0 {
			t.Errorf("%d %s ids were not given back", n, what)
		}
	}
}

// TestChangeCostsTheSame checks that with 10,000 services of 10 endpoints adding, updating and
// deleting one takes as long as with no others. The two are measured alternately, so other load
// slows both.
func TestChangeCostsTheSame(t *testing.T) {
	few, many := load(t), load(t)
	const n = 10000
	t.Logf("%d services of 10 endpoints: applied in %v", n, apply(t, many, putChanges(0, n, 10)...))
	steps := []struct {
		name   string
		change []Change
	}{
		{"add", putChanges(n, n+1, 10)},
		{"update", putChanges(n, n+1, 11)},
		{"delete", []Change{{Key: serviceKey(n)}}},
	}
	took := map[string]*[2][]time.Duration{}
	for range 300 {
		for _, step := range steps {
			times := took[step.name]
			if times == nil {
				times = &[2][]time.Duration{}
				took[step.name] = times
			}
			for i, d := range []*testTables{few, many} {
				times[i] = append(times[i], apply(t, d, step.change...))
			}
		}
	}
	for _, step := range steps {
		a, b := median(took[step.name][0]), median(took[step.name][1])
		t.Logf("%-6s %v alone, %v beside %d others", step.name, a, b, n)
		if b > 3*a {
			t.Errorf("to %s one costs %v, and %v beside %d others", step.name, a, b, n)
		}
	}
}

// TestReserve checks that services need no more room than was reserved, and use only what they
// need.
func TestReserve(t *testing.T) {
	d := load(t)
	const services, endpoints = 2000, 10
	d.Reserve(services, services*endpoints)
	made := func() (n []int) {
		d.mu.Lock() // waits, as for changes
		defer d.mu.Unlock()
		for _, a := range append(d.endpointRows(), d.arrays.Slots) {
			n = append(n, len(a.Segments()))
		}
		return n
	}
	if got := made(); !slices.Equal(got, []int{5, 5, 5, 5, 5, 5, 1}) {
		t.Errorf("segments of endpoints, states, counts, traffics, handshakes, their steps, slots: %v", got)
	}
	apply(t, d, putChanges(0, services, endpoints)...)
	d.Reserve(services, services*endpoints)
	if got := made(); !slices.Equal(got, []int{5, 5, 5, 5, 5, 5, 1}) {
		t.Errorf("segments once they are there: %v", got)
	}
	d.Reserve(MaxServices+1, 2*MaxEndpoints) // beyond the limits
	if got := made(); !slices.Equal(got, []int{64, 64, 64, 64, 64, 64, 17}) {
		t.Errorf("segments of more than there can be: %v", got)
	}
	d.Reserve(MaxServices+1, 2*MaxEndpoints)
	if !d.mu.TryLock() {
		t.Fatal("changes wait though there is nothing to make")
	}
	d.mu.Unlock()
}

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}

// TestSizes checks that the memory of each of 65,536 services and 262,144 endpoints is small.
func TestSizes(t *testing.T) {
	if n := unsafe.Sizeof(service{}); n > 128 {
		t.Errorf("a service takes %d bytes", n)
	}
	if n := unsafe.Sizeof(endpoint{}); n > 64 {
		t.Errorf("an endpoint takes %d bytes", n)
	}
}
