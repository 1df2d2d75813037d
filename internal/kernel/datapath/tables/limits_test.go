package tables

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/loader"
	"loxilb/test/dptest"
)

// numbersOf returns the maps of numbers by service id.
func numbersOf(d *testTables) map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		"idle timeout": d.maps.IdleTimeouts, "persist timeout": d.maps.PersistTimeouts, "MSS": d.maps.MssLimits,
	}
}

// limited returns service number n with each of those numbers.
func limited(n int) Change {
	t := table(n, 1)
	t.MSS, t.Idle, t.Persist = 1400, time.Minute, time.Hour
	return Change{Key: t.Key, Table: t}
}

// TestNumbersOfKilled checks that a service whose id had another owner, which a killed process
// deleted halfway, has no timeouts and no MSS of that owner.
func TestNumbersOfKilled(t *testing.T) {
	t.Parallel()
	d, err := open(loader.Settings{Connections: 1024, PinDir: dptest.PinDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.Close() }()
	apply(t, d, limited(1))
	id := d.services[serviceKey(1)].id
	if err := d.c.Maps.Services.Delete(serviceKey(1)); err != nil {
		t.Fatal(err)
	}
	d = reload(t, d)
	sweep(t, d)
	skip(d, time.Minute)
	apply(t, d, Change{Key: serviceKey(2), Table: table(2, 1)})
	if got := d.services[serviceKey(2)].id; got != id {
		t.Fatalf("the new service has the id %d, want that of the old one, %d", got, id)
	}
	wantNumbers(t, d, 2, false)
}

// TestMSSCount checks that SYNs are examined only while a service limits segments.
func TestMSSCount(t *testing.T) {
	t.Parallel()
	d := load(t)
	want := func(step string, want uint32) {
		t.Helper()
		var n uint32
		if err := d.vars.MssServices.Get(&n); err != nil {
			t.Fatal(err)
		}
		if n != want {
			t.Errorf("%s: %d services limit segments, want %d", step, n, want)
		}
	}
	plain := func(n int) Change { return Change{Key: serviceKey(n), Table: table(n, 1)} }
	apply(t, d, limited(1), limited(2), plain(3))
	want("two of three", 2)
	wantNumbers(t, d, 1, true)
	apply(t, d, limited(1))
	want("the same again", 2)
	apply(t, d, plain(1))
	want("one without", 1)
	wantNumbers(t, d, 1, false)
	apply(t, d, Change{Key: serviceKey(2)})
	want("the other one deleted", 0)
}

// wantNumbers checks that a service has all of the numbers, or none.
func wantNumbers(t *testing.T, d *testTables, service int, all bool) {
	t.Helper()
	for name, m := range numbersOf(d) {
		var n uint32
		if err := m.Lookup(d.services[serviceKey(service)].id, &n); err != nil {
			t.Fatal(err)
		}
		if n != 0 != all {
			t.Errorf("service %d: %s is %d", service, name, n)
		}
	}
}

// TestReapOfReturned checks that an endpoint keeps its row if it returns to its service between the
// read of its connections and the lock, also if it is removed again by then.
func TestReapOfReturned(t *testing.T) {
	t.Parallel()
	d := load(t)
	both, one := named(1, 2), named(1)
	apply(t, d, both)
	ids := ids4(d)
	apply(t, d, one)
	now := d.now()
	d.now = func() time.Time { return now }
	idle, err := d.idleEnding(now)
	if err != nil || len(idle) != 1 || idle[0].id != ids[2] {
		t.Fatalf("got %v, %v, want no error, 1 element in idle, idle[0].id == ids[2]", idle, err)
	}
	reap := func(step string) {
		t.Helper()
		if err := d.reapSome(idle, now); err != nil {
			t.Fatal(err)
		}
		if n := len(endpointsByID(d)); n != 2 {
			t.Errorf("%s: %d endpoints, want 2", step, n)
		}
		wantIndex(t, d)
	}
	apply(t, d, both)
	reap("taken back")
	d.now = func() time.Time { return now.Add(time.Second) }
	apply(t, d, one)
	reap("taken out again")
	sweep(t, d)
	if n := len(endpointsByID(d)); n != 1 {
		t.Errorf("%d endpoints after a sweep, want 1", n)
	}
}
