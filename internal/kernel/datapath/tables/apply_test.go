package tables

import (
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/test/dptest"
)

// state is a desired state: tables by key.
type state map[bpf.TcServiceKey]*bpf.ServiceTable

// randomState creates a few services out of few keys and endpoints, so two states overlap.
func randomState(r *rand.Rand) state {
	s := state{}
	for n := range 8 {
		if r.IntN(3) == 0 {
			continue
		}
		vip := netip.AddrFrom4([4]byte{20, 0, 0, byte(n / 3)}) // services share VIPs
		t := &bpf.ServiceTable{Key: bpf.TcServiceKey{Vip: bpf.Addr(vip), Port: bpf.Port(uint16(80 + n)), Protocol: 6}}
		if r.IntN(2) == 0 {
			t.Idle = time.Duration(1+r.IntN(100)) * time.Second
		}
		for _, host := range r.Perm(12)[:1+r.IntN(12)] {
			a := netip.AddrFrom4([4]byte{10, 0, 0, byte(host)})
			t.Endpoints = append(t.Endpoints, bpf.EndpointTable{Addr: bpf.Addr(a), Port: bpf.Port(80), Weight: uint16(host)})
		}
		for range r.IntN(40) {
			t.Slots = append(t.Slots, uint32(r.IntN(len(t.Endpoints))))
		}
		s[t.Key] = t
	}
	return s
}

// changesTo returns the changes that turn s into next: of all services, or of differing ones.
func (s state) changesTo(next state, everything bool) []Change {
	var changes []Change
	for k := range s {
		if next[k] == nil {
			changes = append(changes, Change{Key: k})
		}
	}
	for k, t := range next {
		if everything || !cmp.Equal(s[k], t) {
			changes = append(changes, Change{Key: k, Table: t})
		}
	}
	return changes
}

// TestApplyOracle checks that applying a state leaves the same as applying it to a new data path,
// whatever came before, and that applying it again changes nothing that packets can see, also
// through restarts.
func TestApplyOracle(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	fresh := load(t)
	for round := range uint64(2) {
		r := rand.New(rand.NewPCG(seed, round))
		dir := dptest.PinDir(t)
		d, err := open(loader.Settings{Connections: 1024, PinDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		now := state{}
		for range 10 {
			next := randomState(r)
			apply(t, d, now.changesTo(next, r.IntN(2) == 0)...)
			now = next
			if r.IntN(3) == 0 {
				apply(t, d, now.changesTo(now, true)...)
			}
			if r.IntN(3) == 0 {
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				if d, err = open(loader.Settings{Connections: 1024, PinDir: dir}); err != nil {
					t.Fatal(err)
				}
				wantIndex(t, d)
			}
			sweep(t, d)
			apply(t, fresh, state{}.changesTo(now, true)...)
			if diff := cmp.Diff(dump(t, fresh), dump(t, d)); diff != "" {
				t.Fatalf("seed %d round %d: -fresh +this\n%s", seed, round, diff)
			}
			wantIndex(t, d)
			apply(t, fresh, now.changesTo(state{}, true)...)
			sweep(t, fresh)
			skip(fresh, 2*rows.Quarantine)
			skip(d, rows.Quarantine/2)
		}
		apply(t, d, now.changesTo(state{}, true)...)
		sweep(t, d)
		wantEmpty(t, d)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	wantEmpty(t, fresh)
}

// wantIndex compares the index in memory with the maps.
func wantIndex(t testing.TB, d *testTables) {
	t.Helper()
	r := readMaps(t, d)
	if len(r.services) != len(d.services)+len(d.secondary) || len(r.endpoints) != len(endpointsByID(d)) || !maps.Equal(r.vips, d.vips) {
		t.Errorf("the maps have %d services, %d endpoints and the VIPs %v; the index %d, %d and %v",
			len(r.services), len(r.endpoints), r.vips, len(d.services), len(endpointsByID(d)), d.vips)
	}
	for k, s := range d.services {
		row := r.services[k]
		if s.row.Id != s.id || row != s.row {
			t.Errorf("service %s: %+v, in the index %+v", k, row, s)
		}
		for _, e := range s.order {
			if d.endpoint(e.id) != e || e.service != s || d.ending[e.id] != nil {
				t.Errorf("service %s: endpoint %s is in the wrong index", k, e.at())
			}
		}
	}
	for id, e := range endpointsByID(d) {
		row := r.endpoints[id]
		if bpf.AddrPort(row.Addr, row.Port) != e.at() || row.Service != e.service.id {
			t.Errorf("endpoint %d: %+v, in the index %+v", id, row, e)
		}
		ending := row.Flags&endpointRemoved != 0
		if (d.ending[id] == e) != ending || (e.service.ending[e.at()] == e) != ending {
			t.Errorf("endpoint %s: flags %d, and in the index ending: %v", e.at(), row.Flags, d.ending[id] != nil)
		}
	}
}

// named creates service 1 with these endpoints, one slot each.
func named(hosts ...byte) Change {
	t := &bpf.ServiceTable{Key: serviceKey(1), Name: "web"}
	for i, host := range hosts {
		a := netip.AddrFrom4([4]byte{10, 0, 0, host})
		t.Endpoints = append(t.Endpoints, bpf.EndpointTable{Addr: bpf.Addr(a), Port: bpf.Port(80), Weight: 1})
		t.Slots = append(t.Slots, uint32(i))
	}
	return Change{Key: t.Key, Table: t}
}

func ids4(d *testTables) map[byte]uint32 {
	out := map[byte]uint32{}
	for id, e := range endpointsByID(d) {
		out[e.at().Addr().As4()[3]] = id
	}
	return out
}

// TestUpdateKeepsIDs checks that an endpoint that stays keeps its row in any order, and that a
// removed one keeps it until its last connection has ended, and gets it back if it returns before
// that.
func TestUpdateKeepsIDs(t *testing.T) {
	d := load(t)
	apply(t, d, named(1, 2, 3))
	first := ids4(d)
	apply(t, d, named(4, 3, 1))
	second := ids4(d)
	if second[1] != first[1] || second[3] != first[3] || second[2] != first[2] {
		t.Errorf("ids %v became %v", first, second)
	}
	want := "endpoint 10.0.0.1:80 of 20.0.0.1:80/tcp flags=1\nendpoint 10.0.0.2:80 of 20.0.0.1:80/tcp flags=5\n" +
		"endpoint 10.0.0.3:80 of 20.0.0.1:80/tcp flags=1\nendpoint 10.0.0.4:80 of 20.0.0.1:80/tcp flags=1\n" +
		"service 20.0.0.1:80/tcp idle=0 slots 10.0.0.4:80 10.0.0.3:80 10.0.0.1:80\nvip 20.0.0.1 services=1 ranges=0"
	if diff := cmp.Diff(want, dump(t, d)); diff != "" {
		t.Errorf("the tables differ (-want +got):\n%s", diff)
	}
	setActive(t, d, first[2], 1)
	sweep(t, d)
	if got := ids4(d); got[2] != first[2] {
		t.Errorf("an endpoint with a connection lost its row: %v", got)
	}
	apply(t, d, named(2))
	if got := ids4(d); got[2] != first[2] || len(d.ending) != 3 {
		t.Errorf("the endpoint came back with another id: %v", got)
	}
	sweep(t, d) // frees the other rows
	if diff := cmp.Diff(map[byte]uint32{2: first[2]}, ids4(d)); diff != "" {
		t.Errorf("the endpoints' ids differ (-want +got):\n%s", diff)
	}
	apply(t, d, named(2, 1))
	if got := ids4(d); slices.Contains([]uint32{first[1], first[2], first[3], second[4]}, got[1]) {
		t.Errorf("the id of a freed row is used again at once: %v", got)
	}
	skip(d, 2*rows.Quarantine)
	apply(t, d, named(2, 1, 9))
	if got := ids4(d); !slices.Contains([]uint32{first[1], first[3], second[4]}, got[9]) {
		t.Errorf("freed rows are not used again: %v", got)
	}
}

// setActive sets the number of an endpoint's connections in the maps.
func setActive(t testing.TB, d *testTables, id uint32, n uint64) {
	t.Helper()
	if err := d.c.EndpointStates.Put(id, bpf.TcEndpointState{Connections: n + 5, Active: int64(n), Tracked: n}); err != nil {
		t.Fatal(err)
	}
}

// TestDeleteAndMakeAgain checks that a service that is deleted and created again is a new one, with
// its own counters, while endpoints of the old one are still ending.
func TestDeleteAndMakeAgain(t *testing.T) {
	d := load(t)
	apply(t, d, named(1, 2))
	old := ids4(d)
	setActive(t, d, old[1], 3)
	apply(t, d, Change{Key: serviceKey(1)})
	if _, ok := d.ServiceStats(serviceKey(1)); ok {
		t.Error("a deleted service has counters")
	}
	apply(t, d, named(1, 2))
	stats, ok := d.ServiceStats(serviceKey(1))
	if !ok || stats.Connections != 0 || stats.Active != 0 {
		t.Errorf("the new one has counters of the old one: %+v, %v", stats, ok)
	}
	if n := len(endpointsByID(d)); n != 4 {
		t.Errorf("%d endpoints", n)
	}
	if d.services[serviceKey(1)].id == d.endpoint(old[1]).service.id {
		t.Error("the new service has the id that endpoints of the old one still refer to")
	}
	sweep(t, d)
	if n := len(endpointsByID(d)); n != 3 {
		t.Errorf("%d endpoints after a sweep, one of them with connections", n)
	}
	wantIndex(t, d)
	setActive(t, d, old[1], 0)
	sweep(t, d)
	wantIndex(t, d)
	if n := len(endpointsByID(d)); n != 2 {
		t.Errorf("%d endpoints when the last connection is gone", n)
	}
}

// TestReapForgets checks that Reap reports whether it frees endpoints: otherwise changes need not
// search all remembered clients while a removed endpoint still has connections.
func TestReapForgets(t *testing.T) {
	t.Parallel()
	d := load(t)
	wantFrees := func(when string, want bool) {
		t.Helper()
		calls := 0
		err := d.Reap(func() bool { return true }, func(frees bool) error {
			if calls++; frees != want {
				t.Errorf("%s: frees is %v, want %v", when, frees, want)
			}
			return nil
		})
		if err != nil || calls != 1 {
			t.Errorf("%s: %d calls, %v", when, calls, err)
		}
	}
	apply(t, d, named(1, 2))
	first := ids4(d)[1]
	setActive(t, d, first, 3)
	wantFrees("no endpoint was removed", false)
	apply(t, d, named(2))
	wantFrees("the removed endpoint has connections", false)
	setActive(t, d, first, 0)
	wantFrees("its last connection has ended", true)
	if n := len(endpointsByID(d)); n != 1 {
		t.Errorf("%d endpoints, want 1", n)
	}
}

// TestFailureChangesNothing checks that a service that cannot be applied is not changed, that
// others are applied, and that its new rows are freed.
func TestFailureChangesNothing(t *testing.T) {
	d := load(t)
	apply(t, d, named(1, 2))
	d.endpointIDs = rows.NewIDs(4, d.now)
	for id := range endpointsByID(d) {
		d.endpointIDs.Take(id)
	}
	errs := d.Apply([]Change{named(2, 3, 4, 5), {Key: serviceKey(2), Table: table(2, 3)}, {Key: serviceKey(3), Table: table(3, 0)}})
	if !errors.Is(errs[0], ErrFull) || !errors.Is(errs[1], ErrFull) || errs[2] != nil || len(d.services) != 2 {
		t.Errorf("%v, %d services", errs, len(d.services))
	}
	sweep(t, d)
	want := "endpoint 10.0.0.1:80 of 20.0.0.1:80/tcp flags=1\nendpoint 10.0.0.2:80 of 20.0.0.1:80/tcp flags=1\n" +
		"service 20.0.0.1:80/tcp idle=0 slots 10.0.0.1:80 10.0.0.2:80\nservice 20.0.0.3:80/tcp idle=0 slots\n" +
		"vip 20.0.0.1 services=1 ranges=0\nvip 20.0.0.3 services=1 ranges=0"
	if diff := cmp.Diff(want, dump(t, d)); diff != "" {
		t.Errorf("the tables differ (-want +got):\n%s", diff)
	}
	wantIndex(t, d)
	skip(d, 2*rows.Quarantine)
	apply(t, d, named(2, 3, 4))
}
