package routing

import (
	"errors"
	"maps"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
)

func open(t *testing.T) *Routing {
	t.Helper()
	c, err := loader.Open(loader.Settings{Connections: 1024})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	r, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestDefaultRoutes checks that only differences are written, that failed writes are retried, and
// that the final contents are as requested.
func TestDefaultRoutes(t *testing.T) {
	t.Parallel()
	r := open(t)
	route := func(last byte, index int) DefaultRoute {
		return DefaultRoute{Gateway: netip.AddrFrom4([4]byte{192, 0, 2, last}), Interface: index}
	}
	first := []DefaultRoute{route(1, 2), route(2, 3), {Interface: 4}}
	second := []DefaultRoute{route(1, 2), route(3, 3)}
	if err := r.SetDefaultRoutes(first); err != nil {
		t.Fatal(err)
	}
	wantRoutes(t, r, first)
	if err := r.routes.Freeze(); err != nil { // writes fail from here on
		t.Fatal(err)
	}
	if err := r.SetDefaultRoutes(first); err != nil {
		t.Errorf("unchanged routes are written: %v", err)
	}
	if err := r.SetDefaultRoutes(second); err == nil {
		t.Error("a failure is not reported")
	}
	wantRoutes(t, r, first)
	thaw(t, r)
	for range 2 {
		if err := r.SetDefaultRoutes(second); err != nil {
			t.Errorf("tried again: %v", err)
		}
		wantRoutes(t, r, second)
	}
	if err := r.SetDefaultRoutes(nil); err != nil {
		t.Error(err)
	}
	wantRoutes(t, r, nil)
}

// thaw replaces the frozen map by a writable one.
func thaw(t *testing.T, r *Routing) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: r.routes.Type(), KeySize: r.routes.KeySize(), ValueSize: r.routes.ValueSize(), MaxEntries: r.routes.MaxEntries()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	err = rows.Each(r.routes, func(k bpf.TcDefaultRoute, one uint8) {
		if err := m.Put(k, one); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	r.routes = m
}

func wantRoutes(t *testing.T, r *Routing, list []DefaultRoute) {
	t.Helper()
	have, want := map[bpf.TcDefaultRoute]bool{}, map[bpf.TcDefaultRoute]bool{}
	if err := rows.Each(r.routes, func(k bpf.TcDefaultRoute, _ uint8) { have[k] = true }); err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		key := bpf.TcDefaultRoute{Ifindex: uint32(d.Interface)}
		if d.Gateway.IsValid() {
			key.Gateway = bpf.Addr(d.Gateway)
		}
		want[key] = true
	}
	if !maps.Equal(have, want) {
		t.Errorf("the routes are %v, want %v", have, want)
	}
}

// TestGenerations checks that a daemon's first generations differ from those in connections, also
// in connections that programs of the previous daemon still open. A change of neighbours changes
// only their generation, a change of routes both.
func TestGenerations(t *testing.T) {
	t.Parallel()
	c, err := loader.Open(loader.Settings{Connections: 1024})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	first, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	routes, neighbours := first.Generations()
	want := func(r *Routing, step string, wantRoutes, wantNeighbours uint32) {
		t.Helper()
		gotRoutes, gotNeighbours := r.Generations()
		var seenRoutes, seenNeighbours uint32
		if err := errors.Join(c.Variables.HopGeneration.Get(&seenRoutes), c.Variables.NeighbourGeneration.Get(&seenNeighbours)); err != nil {
			t.Fatal(err)
		}
		if gotRoutes != wantRoutes || gotNeighbours != wantNeighbours || seenRoutes != wantRoutes || seenNeighbours != wantNeighbours {
			t.Errorf("%s: generations are %d and %d, programs see %d and %d, want %d and %d",
				step, gotRoutes, gotNeighbours, seenRoutes, seenNeighbours, wantRoutes, wantNeighbours)
		}
	}
	if err := first.BumpNeighbours(); err != nil {
		t.Fatal(err)
	}
	want(first, "neighbours", routes, neighbours+1)
	if err := first.BumpNextHops(); err != nil {
		t.Fatal(err)
	}
	want(first, "routes", routes+1, neighbours+2)
	second, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	want(second, "the next daemon", routes+1+afterRestart+1, neighbours+3)

	second.epochs.neighbours = neighbourBits
	if err := second.BumpNeighbours(); err != nil {
		t.Fatal(err)
	}
	want(second, "after the last one", routes+1+afterRestart+1, 0)
}

// TestForgetOtherLinks checks that rows of an earlier process are removed if their interfaces
// disappeared while no daemon ran.
func TestForgetOtherLinks(t *testing.T) {
	t.Parallel()
	r := open(t)
	for index := range 100 {
		if err := r.SetLink(index+1, Link{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.ForgetOtherLinks(func(index int) bool { return index == 7 }); err != nil {
		t.Fatal(err)
	}
	left := map[uint32]uint32{}
	if err := rows.Each(r.links, func(index, flags uint32) { left[index] = flags }); err != nil {
		t.Fatal(err)
	}
	if want := map[uint32]uint32{7: 0}; !maps.Equal(left, want) {
		t.Errorf("rows of %v are left, want %v", left, want)
	}
}

// TestLinkOfAnotherKind checks that connections resolve their next hops again if an interface is of
// another kind than before, and only then.
func TestLinkOfAnotherKind(t *testing.T) {
	t.Parallel()
	r := open(t)
	for _, step := range []struct {
		what    string
		link    Link
		resolve bool
	}{
		{"a new interface", Link{Peer: true, Queues: true}, false},
		{"no change", Link{Peer: true, Queues: true}, false},
		{"packets are no longer queued", Link{Peer: true}, true},
		{"no longer a peer", Link{}, true},
	} {
		before, _ := r.Generations()
		if err := r.SetLink(1, step.link); err != nil {
			t.Fatal(err)
		}
		if after, _ := r.Generations(); (after != before) != step.resolve {
			t.Errorf("%s: generation %d after %d, want another one: %v", step.what, after, before, step.resolve)
		}
	}
}
