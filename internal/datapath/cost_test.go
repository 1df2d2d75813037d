package datapath

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"loxilb/internal/datapath/bpf"
)

// ringRepeat is how often a packet goes round in one call: every pass takes one from its TTL.
const ringRepeat = 200

// TestEstablishedCost times an established packet beside an empty program in the same run. The flows form a
// ring, each translating into the next, so that a packet that is run again is one of another flow.
func TestEstablishedCost(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	empty := emptyProgram(t)
	for _, c := range []struct {
		name  string
		flows int
		v6    bool
	}{{"v4 1", 2, false}, {"v4 200k", 200000, false}, {"v6 1", 2, true}, {"v6 200k", 200000, true}} {
		d, err := Load(Config{Connections: 262144})
		if err != nil {
			t.Fatal(err)
		}
		frame := ring(t, d, c.flows, c.v6)
		base := bench(t, empty, func(int) []byte { return frame(0) })
		before := dropped(t, d)
		ours := bench(t, d.obj.LoxilbEther, frame)
		if n := dropped(t, d) - before; n > 0 {
			t.Errorf("%s: %d packets dropped", c.name, n)
		}
		t.Logf("%-8s empty %v ns, established %v ns, own %v ns", c.name, base, ours, ours-base)
		d.Close()
	}
}

func dropped(t *testing.T, d *Datapath) (sum uint64) {
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

// bench is the best of many calls, in ns.
func bench(t *testing.T, p *ebpf.Program, frame func(int) []byte) int {
	t.Helper()
	var all []time.Duration
	for i := range 1000 {
		_, took, err := p.Benchmark(frame(i), ringRepeat, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, took)
	}
	slices.Sort(all)
	return int(all[len(all)/10].Nanoseconds())
}

func emptyProgram(t *testing.T) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// ring fills the table with n flows, each of which translates into the next, and returns frames that enter it.
func ring(t *testing.T, d *Datapath, n int, v6 bool) func(int) []byte {
	t.Helper()
	src, dst := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	if v6 {
		src, dst = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	}
	key := func(i int) bpf.TcConnectionKey {
		i %= n
		return bpf.TcConnectionKey{
			Saddr: bpf.Addr(src), Daddr: bpf.Addr(dst), Protocol: 6,
			Sport: bpf.Port(uint16(i)), Dport: bpf.Port(uint16(1 + i>>16)),
		}
	}
	now := jiffiesNow(t, d)
	for i := range n {
		to := key(i + 1)
		delta := uint32(to.Sport) + uint32(to.Dport) + uint32(^key(i).Sport) + uint32(^key(i).Dport)
		delta = delta&0xffff + delta>>16
		delta = delta&0xffff + delta>>16
		row := bpf.TcConnection{
			Saddr: to.Saddr, Daddr: to.Daddr, Sport: to.Sport, Dport: to.Dport, AddressSum: 0xffff, TupleSum: uint16(delta),
			Ifindex: 1, HopEpoch: uint16(now >> 13), Mtu: 65535, Seen: now,
			Flags: uint8(bpf.TcConnectionFlagCONN_REPLIED | bpf.TcConnectionFlagCONN_ASSURED),
		}
		if err := d.obj.Connections.Put(key(i), row); err != nil {
			t.Fatal(err)
		}
	}
	return func(i int) []byte {
		return tcpFrame(src, dst, bpf.Port(key(i*ringRepeat).Sport), bpf.Port(key(i*ringRepeat).Dport))
	}
}

// tcpFrame is an ACK of 100 bytes of payload, to the MAC of lo.
func tcpFrame(src, dst netip.Addr, sport, dport uint16) []byte {
	eth := make([]byte, 14)
	var ip []byte
	if src.Is4() {
		binary.BigEndian.PutUint16(eth[12:], 0x0800)
		ip = make([]byte, 20)
		ip[0], ip[8], ip[9] = 0x45, 255, 6
		binary.BigEndian.PutUint16(ip[2:], 140)
		copy(ip[12:], src.AsSlice())
		copy(ip[16:], dst.AsSlice())
	} else {
		binary.BigEndian.PutUint16(eth[12:], 0x86dd)
		ip = make([]byte, 40)
		ip[0], ip[6], ip[7] = 0x60, 6, 255
		binary.BigEndian.PutUint16(ip[4:], 120)
		copy(ip[8:], src.AsSlice())
		copy(ip[24:], dst.AsSlice())
	}
	tcp := make([]byte, 120)
	binary.BigEndian.PutUint16(tcp, sport)
	binary.BigEndian.PutUint16(tcp[2:], dport)
	tcp[12], tcp[13] = 5<<4, 0x10
	return append(append(eth, ip...), tcp...)
}

// jiffiesNow has a packet stamp an entry.
func jiffiesNow(t *testing.T, d *Datapath) uint32 {
	t.Helper()
	a := netip.MustParseAddr("192.0.2.1")
	key := bpf.TcConnectionKey{Saddr: bpf.Addr(a), Daddr: bpf.Addr(a), Protocol: 6}
	row := bpf.TcConnection{Flags: uint8(bpf.TcConnectionFlagCONN_REPLIED | bpf.TcConnectionFlagCONN_ASSURED)}
	// any value of seen that is not past its time will do, and one of four quarters of the clock is
	for q := range uint32(4) {
		row.Seen = q << 30
		if err := d.obj.Connections.Put(key, row); err != nil {
			t.Fatal(err)
		}
		peer := key
		if err := d.obj.Connections.Put(peer, row); err != nil {
			t.Fatal(err)
		}
		if _, err := d.obj.LoxilbEther.Run(&ebpf.RunOptions{Data: tcpFrame(a, a, 0, 0)}); err != nil {
			t.Fatal(err)
		}
		var got bpf.TcConnection
		if err := d.obj.Connections.Lookup(key, &got); err == nil && got.Seen != row.Seen {
			if err := d.obj.Connections.Delete(key); err != nil {
				t.Fatal(err)
			}
			return got.Seen
		}
	}
	t.Fatal("no packet was taken")
	return 0
}
