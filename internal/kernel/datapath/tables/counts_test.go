package tables

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// setCounts sets counts of a service's endpoint on each CPU.
func setCounts(t testing.TB, d *testTables, id uint32, connections, active uint64) {
	t.Helper()
	perCPU := make([]bpf.TcEndpointTraffic, ebpf.MustPossibleCPU())
	for i := range perCPU {
		perCPU[i] = bpf.TcEndpointTraffic{PacketsIn: 1, BytesIn: 100, PacketsOut: 2, BytesOut: 2000}
	}
	if err := d.arrays.EndpointTraffics.Put(id, perCPU); err != nil {
		t.Fatal(err)
	}
	if err := d.arrays.EndpointStates.Put(id, bpf.TcEndpointState{Connections: connections, Active: int64(active), Tracked: active + 2}); err != nil {
		t.Fatal(err)
	}
}

// TestEachCount checks that the requested counts are read, in any segment, also of ending
// endpoints, under the service's key as users write it.
func TestEachCount(t *testing.T) {
	t.Parallel()
	d := load(t)
	apply(t, d, putChanges(0, 500, 10)...) // exceeds a segment
	var ids []uint32
	d.EachEndpointID(serviceKey(499), func(i int, id uint32) {
		if i != len(ids) {
			t.Errorf("row %d is endpoint %d's", len(ids), i)
		}
		ids = append(ids, id)
	})
	if len(ids) != 10 {
		t.Fatalf("%d rows", len(ids))
	}
	setCounts(t, d, ids[3], 5, 1)
	setCounts(t, d, ids[9], 7, 0)
	read := func() map[uint32]report.EndpointCount {
		out := map[uint32]report.EndpointCount{}
		err := d.EachCount(func(_ uint32, connections, _ uint64) bool { return connections > 0 }, func(c *report.EndpointCount) { out[c.ID] = *c })
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	key := lb.Key{VIP: netip.MustParseAddr("20.0.1.243"), Port: 80, Protocol: lb.TCP}
	got, cpus := read(), uint64(ebpf.MustPossibleCPU())
	if c := got[ids[3]]; len(got) != 2 || c.Service != key || c.Connections != 5 || c.Active != 1 || c.Inactive != 2 || c.In.Packets != cpus || c.Out.Bytes != 2000*cpus {
		t.Errorf("got %+v, want 2 elements, c.Service == key, c.Connections == 5, "+
			"c.Active == 1, c.Inactive == 2, c.In.Packets == cpus, c.Out.Bytes == 2000*cpus",
			got)
	}
	const many = 4096 / fewOfASlice * 2 // endpoints of the first segment, which are read in batches
	for id := range uint32(many) {
		setCounts(t, d, 2*id, 1, 1)
	}
	if got = read(); len(got) != many+2 || got[2*many-2].In.Bytes != 100*cpus || got[ids[3]].Connections != 5 {
		t.Errorf("%d are read, want %d: %+v", len(got), many+2, got[2*many-2])
	}
	apply(t, d, putChanges(499, 500, 9)...)
	if got = read(); len(got) != many+2 {
		t.Errorf("an endpoint that is ending is not read: %d", len(got))
	}
}

// TestUserKey checks that the key in the data path converts back to that of the user's service.
func TestUserKey(t *testing.T) {
	t.Parallel()
	v6 := netip.MustParseAddr("2001:db8::1")
	for _, k := range []lb.Key{
		{VIP: netip.MustParseAddr("20.20.20.1"), Port: 80, Protocol: lb.TCP, Mark: 7},
		{VIP: v6, Port: 1000, PortMax: 2000, Protocol: lb.UDP},
		{VIP: v6, Protocol: lb.ICMP},
	} {
		s := service{key: bpf.TcServiceKey{Vip: bpf.Addr(k.VIP), Port: bpf.Port(k.Port), Protocol: uint8(k.Protocol), Mark: k.Mark}, portMax: k.PortMax}
		if k.Protocol == lb.ICMP {
			s.key.Protocol = uint8(lb.ICMPv6)
		}
		if k.PortMax != 0 {
			s.key.Kind = uint8(bpf.TcServiceKindSERVICE_RANGE)
		}
		if got := s.userKey(); got != k {
			t.Errorf("the key of the row of %v reads back as %v", k, got)
		}
	}
}

// BenchmarkEachCount reads 100,000 endpoints with connections, and as many idle ones.
func BenchmarkEachCount(b *testing.B) {
	d := load(b)
	apply(b, d, putChanges(0, 10_000, 10)...)
	for id := range uint32(100_000) {
		setCounts(b, d, id, 1, 1)
	}
	for name, want := range map[string]bool{"busy": true, "idle": false} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := d.EachCount(func(uint32, uint64, uint64) bool { return want }, func(*report.EndpointCount) {}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
