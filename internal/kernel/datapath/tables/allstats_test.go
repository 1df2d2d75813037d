package tables

import (
	"errors"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

// allStats returns AllStats's counts of services, by their index, and of the machine.
func allStats(t *testing.T, d *testTables, keys ...bpf.TcServiceKey) (map[int]report.ServiceStats, report.EndpointStats) {
	t.Helper()
	out := map[int]report.ServiceStats{}
	all, err := d.AllStats(keys, func(index int, s *report.ServiceStats) { out[index] = *s })
	if err != nil {
		t.Fatal(err)
	}
	return out, all
}

// TestAllStats checks that AllStats of all services equals the counts of each alone, in any
// segment, and that the machine's counts stay when endpoints, services and the process go.
func TestAllStats(t *testing.T) {
	t.Parallel()
	d, err := open(loader.Settings{Connections: 1024, PinDir: dptest.PinDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.Close() }()
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	const services, endpoints = 500, 10 // exceeds a segment
	apply(t, d, putChanges(0, services, endpoints)...)
	used := []uint32{0, 11, services*endpoints - 1}
	for _, id := range used {
		traffic := make([]bpf.TcEndpointTraffic, cpus)
		for i := range traffic {
			traffic[i] = bpf.TcEndpointTraffic{PacketsIn: uint64(id) + 1, BytesIn: 100, PacketsOut: 1, BytesOut: 50}
		}
		steps := d.handshakes.stepRows()
		steps[cpus-1] = bpf.TcHandshakeProgress{Opened: 1, Answered: [bpf.TcHandshakeLayoutHANDSHAKE_FAST]uint64{2: 1}}
		err := errors.Join(d.c.EndpointStates.Put(id, bpf.TcEndpointState{Connections: 7}), d.c.EndpointTraffics.Put(id, traffic),
			d.arrays.Handshakes.Shared.Put(id, bpf.TcHandshakeCounts{OpenedBefore: 6, Answered: [report.HandshakeBuckets]uint64{2: 5}, Refused: 1}),
			d.arrays.Handshakes.PerCPU.Put(id, steps))
		if err != nil {
			t.Fatal(err)
		}
	}
	keys := []bpf.TcServiceKey{serviceKey(services), serviceKey(0), serviceKey(1), serviceKey(2), serviceKey(services - 1)}
	before, all := allStats(t, d, keys...)
	if _, there := before[0]; there || len(before) != len(keys)-1 {
		t.Errorf("%d services, and a missing one: %v", len(before), there)
	}
	for index, got := range before {
		if want, ok := d.ServiceStats(keys[index]); !ok || !cmp.Equal(want, got) {
			t.Errorf("service %d: %s", index, cmp.Diff(want, got))
		}
	}
	for name, asked := range map[string][]bpf.TcServiceKey{"few": keys, "many": slices.Repeat(keys, services)} {
		seen := 0
		err := d.EachServiceStats(asked, func(index int, got *report.ServiceStats) {
			seen++
			if want := before[index%len(keys)]; !cmp.Equal(want, *got) {
				t.Errorf("%s, service %d: %s", name, index, cmp.Diff(want, *got))
			}
		})
		if err != nil || seen != len(asked)/len(keys)*len(before) {
			t.Errorf("%s: %d services of %d, %v", name, seen, len(asked), err)
		}
	}
	if all.Connections != 21 || all.In.Bytes != uint64(3*100*cpus) || all.In.Packets != uint64((1+12+services*endpoints)*cpus) || all.Handshakes.Answered[2] != 18 {
		t.Errorf("got %+v, want all.Connections == 21, all.In.Bytes == uint64(3*100*cpus), "+
			"all.In.Packets == uint64((1+12+services*endpoints)*cpus), all.Handshakes.Answered[2] == 18",
			all)
	}
	if one := before[1]; one.Handshakes.Answered[2] != 6 || one.Out.Bytes != uint64(50*cpus) {
		t.Errorf("got %+v, want one.Handshakes.Answered[2] == 6, one.Out.Bytes == uint64(50*cpus)", one)
	}

	smaller := table(0, endpoints)
	smaller.Endpoints, smaller.Slots = smaller.Endpoints[1:], smaller.Slots[1:]
	for i := range smaller.Slots {
		smaller.Slots[i] = uint32(i)
	}
	apply(t, d, Change{Key: smaller.Key, Table: smaller}, Change{Key: serviceKey(1)})
	for _, step := range []func(){func() {}, func() { sweep(t, d) }, func() { d = reload(t, d) }} {
		step()
		after, now := allStats(t, d, keys...)
		if diff := cmp.Diff(all, now); diff != "" {
			t.Errorf("the machine has counted something else: %s", diff)
		}
		if first := after[1]; !cmp.Equal(first.EndpointStats, before[1].EndpointStats) || first.Endpoints[0].Connections != 0 {
			t.Errorf("%+v, was %+v", first, before[1])
		}
	}
}

// BenchmarkAllStats reads 10,000 services of 10 endpoints.
func BenchmarkAllStats(b *testing.B) {
	d := load(b)
	const services = 10_000
	apply(b, d, putChanges(0, services, 10)...)
	for segment := range d.c.EndpointStates.Shared.Segments() { // a connection in each, so no row is skipped
		if err := d.c.EndpointStates.Put(uint32(segment)*d.c.EndpointStates.Shared.PerSegment(), bpf.TcEndpointState{Connections: 7}); err != nil {
			b.Fatal(err)
		}
	}
	keys := make([]bpf.TcServiceKey, services)
	for n := range keys {
		keys[n] = serviceKey(n)
	}
	for b.Loop() {
		if _, err := d.AllStats(keys, func(int, *report.ServiceStats) {}); err != nil {
			b.Fatal(err)
		}
	}
}
