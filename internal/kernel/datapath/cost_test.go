package datapath

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/conntrack"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/test/dptest"
)

// ringRepeat is how often a packet passes the ring in one call: every pass decrements its TTL.
const ringRepeat = 200

// BenchmarkEstablished measures an established packet next to an empty program in the same run. The
// flows form a ring, in which each translates into the next, so repeating a packet uses another
// flow.
func BenchmarkEstablished(b *testing.B) {
	empty := emptyProgram(b, ebpf.SchedCLS)
	for _, c := range rings() {
		b.Run(c.name, func(b *testing.B) {
			d, err := Load(Config{Connections: 262144})
			if err != nil {
				b.Fatal(err)
			}
			defer d.Close()
			frame := ring(b, d, c.flows, c.v6)
			before := dropped(b, d)
			var base, ours []time.Duration
			for i := 0; b.Loop(); i++ {
				base = append(base, timed(b, empty, frame(0)))
				ours = append(ours, timed(b, program(b, d), frame(i)))
			}
			if n := dropped(b, d) - before; n > 0 {
				b.Errorf("%d packets dropped", n)
			}
			reportOwn(b, base, ours)
		})
	}
}

// BenchmarkXDP is BenchmarkEstablished for the XDP program. The kernel generates code at each
// start, which takes so long that an epoch can end: then packets pass, and the ring is created
// again.
func BenchmarkXDP(b *testing.B) {
	empty := emptyProgram(b, ebpf.XDP)
	for _, c := range rings() {
		b.Run(c.name, func(b *testing.B) {
			d, err := Load(Config{Connections: 262144})
			if err != nil {
				b.Fatal(err)
			}
			defer d.Close()
			program := xdpToLoopback(b, d)
			frame := ring(b, d, c.flows, c.v6)
			var base, ours []time.Duration
			for i := 0; b.Loop(); i++ {
				before := forwarded(b, d)
				base = append(base, timed(b, empty, frame(0)))
				took := timed(b, program, frame(i))
				if forwarded(b, d)-before >= ringRepeat {
					ours = append(ours, took)
				} else {
					frame = ring(b, d, c.flows, c.v6)
				}
			}
			if len(ours) == 0 {
				b.Fatal("XDP has forwarded no packets")
			}
			reportOwn(b, base, ours)
		})
	}
}

// ringPorts is the number of a client's ports in a ring, and the first of them.
const ringPorts = 1 << 15

// ringSize is the size of a ring.
type ringSize struct {
	name  string
	flows int
	v6    bool
}

func rings() []ringSize {
	return []ringSize{{"v4/2", 2, false}, {"v4/200k", 200000, false}, {"v6/2", 2, true}, {"v6/200k", 200000, true}}
}

func reportOwn(b *testing.B, base, ours []time.Duration) {
	b.ReportMetric(float64(median(base).Nanoseconds()), "empty-ns")
	b.ReportMetric(float64((median(ours) - median(base)).Nanoseconds()), "own-ns")
	b.ReportMetric(0, "ns/op") // hides the time of the loop, which runs two calls of ringRepeat passes
}

func forwarded(t testing.TB, d *Datapath) uint64 {
	t.Helper()
	n, err := d.XDPForwarded()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func timed(b *testing.B, p *ebpf.Program, frame []byte) time.Duration {
	b.Helper()
	_, took, err := p.Benchmark(frame, ringRepeat, nil)
	if err != nil {
		b.Fatal(err)
	}
	return took
}

func dropped(t testing.TB, d *Datapath) (sum uint64) {
	t.Helper()
	drops, err := d.Drops()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range drops {
		sum += n
	}
	return sum
}

// xdpToLoopback returns the XDP program, which accepts frames of lo and redirects to it.
func xdpToLoopback(t testing.TB, d *Datapath) *ebpf.Program {
	t.Helper()
	if err := d.SetXDP(XDPInterface{Index: 1, Name: "lo", Target: true}); err != nil {
		t.Fatal(err)
	}
	p, err := d.Program()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// program returns the program at the tc hook.
func program(t testing.TB, d *Datapath) *ebpf.Program {
	t.Helper()
	p, err := d.collection.Program(false, false)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}

func emptyProgram(t testing.TB, kind ebpf.ProgramType) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: kind, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// ring fills the table with n flows, each of which translates into the next, and returns a function
// that makes frames of them. Each flow has its own client port. No service has these flows, so ring
// also opens the address filter.
func ring(t testing.TB, d *Datapath, n int, v6 bool) func(int) []byte {
	t.Helper()
	if _, err := rows.OpenFilter(d.collection.Maps.BloomFilter, false); err != nil {
		t.Fatal(err)
	}
	if d.collection.EndpointTraffics.Len() == 0 { // the segment in which packets are counted
		if err := rows.Grow(1, d.collection.EndpointTraffics); err != nil {
			t.Fatal(err)
		}
	}
	src, dst := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	if v6 {
		src, dst = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	}
	key := func(i int) bpf.TcConnectionKey {
		i %= n
		client := src.AsSlice()
		client[len(client)-2] = byte(i / ringPorts)
		from, _ := netip.AddrFromSlice(client)
		return bpf.TcConnectionKey{
			Saddr: bpf.Addr(from), Daddr: bpf.Addr(dst), Protocol: 6,
			Sport: bpf.Port(uint16(ringPorts + i%ringPorts)), Dport: bpf.Port(1),
		}
	}
	now := dptest.Jiffies(t)
	entries := make([]conntrack.Entry, n)
	routes, way := nextHopToLoopback(t, d)
	for i := range n {
		to := key(i + 1)
		from := key(i)
		address := sumChange(uint16(from.Saddr.Word[3]>>16), uint16(to.Saddr.Word[3]>>16))
		tuple := fold(address + sumChange(from.Sport, to.Sport))
		row := bpf.TcConnection{
			Saddr: to.Saddr, Daddr: to.Daddr, Sport: to.Sport, Dport: to.Dport, AddressSum: uint16(fold(address)), TupleSum: uint16(tuple),
			Way: way, WayEpoch: uint16(routes + now>>13), Seen: now + 1<<16, // in the future, as creating the rest of the ring takes time

			Flags: uint8(bpf.TcConnectionFlagCONN_REPLIED | bpf.TcConnectionFlagCONN_ASSURED),
		}
		entries[i] = conntrack.Entry{Key: key(i), Row: row}
	}
	if err := d.collection.Conntrack.Fill(entries); err != nil {
		t.Fatal(err)
	}
	return func(i int) []byte {
		k := key(i * ringRepeat)
		return dptest.TCPFrame(k.Saddr.Netip(), dst, bpf.Port(k.Sport), bpf.Port(k.Dport))
	}
}

// sumChange returns the change of a checksum when a word changes.
func sumChange(from, to uint16) uint32 { return fold(uint32(to) + uint32(^from)) }

func fold(sum uint32) uint32 {
	sum = sum&0xffff + sum>>16
	return sum&0xffff + sum>>16
}

// nextHopToLoopback writes a next hop that ends at lo, in the current generation of routes.
func nextHopToLoopback(t testing.TB, d *Datapath) (routes uint32, way uint16) {
	t.Helper()
	routes, neighbours := d.Generations()
	row := bpf.TcHop{Key: bpf.TcHopKey{Ifindex: 1, Mtu: 1500}, Claim: 1<<32 | uint64(dptest.Jiffies(t)), Neighbours: neighbours}
	if err := d.collection.Maps.Ways.Put(uint32(1), row); err != nil {
		t.Fatal(err)
	}
	return routes, 1
}
