package rows

import (
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"loxilb/internal/kernel/datapath/bpf"
)

func newFilter(t *testing.T, fresh bool) *Filter {
	t.Helper()
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Log(err)
	}
	spec, err := bpf.LoadTc()
	if err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(spec.Maps["bloom_filter"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	f, err := OpenFilter(m, fresh)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *Filter) has(k FilterKey) bool {
	bit := k.bit()
	return f.word(bitsAt+int64(bit/64*8))>>(bit%64)&1 != 0
}

func filterAddr(a string) bpf.TcIpAddr { return bpf.Addr(netip.MustParseAddr(a)) }

// TestNextFilter checks that a bit is cleared when neither a row nor an entry has it, and that what
// is added meanwhile is in the next filter, too.
func TestNextFilter(t *testing.T) {
	t.Parallel()
	f := newFilter(t, true)
	stays, goes, kept, comes := PortKey(filterAddr("10.0.0.1"), 80), PortKey(filterAddr("10.0.0.2"), 80), AllPortsKey(filterAddr("10.0.0.3")), PortKey(filterAddr("::1"), 80)
	rows := func(add func(FilterKey)) { add(stays) }
	for _, k := range []FilterKey{stays, goes, kept} {
		f.Add(k)
	}
	if f.Start(rows) {
		t.Error("the next filter is begun although no row was removed")
	}
	f.Changed()
	if !f.Start(rows) {
		t.Fatal("no filter is being made")
	}
	sweepKeeps(f, kept)
	f.Add(comes)
	f.Swept()
	for k, want := range map[FilterKey]bool{stays: true, goes: false, kept: true, comes: true} {
		if f.has(k) != want {
			t.Errorf("the filter has %v: %v", k, !want)
		}
	}
	if !f.flag(wildcardsAt) {
		t.Error("the key of all ports of an address is not found")
	}
	// the entry is gone, too
	rows = func(add func(FilterKey)) { add(stays); add(comes) }
	if !f.Start(rows) {
		t.Fatal("no filter is begun after only an entry needed a bit")
	}
	f.Swept()
	if f.has(kept) || f.flag(wildcardsAt) || f.Start(rows) {
		t.Error("the bit that only an entry needed outlives the entry")
	}
}

// sweepKeeps does what the sweep does for an entry.
func sweepKeeps(f *Filter, k FilterKey) {
	bit := k.bit()
	at := nextAt + int64(bit/64*8)
	f.setWord(at, f.word(at)|1<<(bit%64))
	f.setFlag(nextWildcardsAt, true)
	f.setFlag(keptAt, true)
}

// TestConnectionsBefore checks that with connections that are older than the filter it lets all
// packets through until a whole sweep has finished.
func TestConnectionsBefore(t *testing.T) {
	t.Parallel()
	f := newFilter(t, false)
	k := PortKey(filterAddr("10.0.0.1"), 80)
	rows := func(add func(FilterKey)) { add(k) }
	if filterShare(f) < 1 || !f.Start(rows) {
		t.Fatal("no filter is being made, or one is in force before the sweep")
	}
	f.Abort() // this sweep does not count
	f.Swept()
	if filterShare(f) < 1 || !f.Start(rows) {
		t.Fatal("no filter is being made, or one is in force before the sweep")
	}
	f.Swept()
	if !f.has(k) || filterShare(f) > 0.5 {
		t.Errorf("after the sweep, the filter has the key: %v, and %g of all bits", f.has(k), filterShare(f))
	}
}

// TestShare checks that for clusters with consecutive addresses, and the maximum number of services
// and endpoints, the rate of false positives is at most the share of set bits.
func TestShare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                string
		services, endpoints int
		most                float64 // rate of false positives, in percent
	}{
		{"1,000 services of 5 endpoints", 1000, 5000, 0.2},
		{"10,000 services of 10 endpoints", 10000, 100000, 2.9},
		{"all that fit", 65536, 262144, 8.2},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFilter(t, true)
			for i := range c.services {
				f.Add(PortKey(bpf.Addr(netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})), bpf.Port(443)))
			}
			for i := range c.endpoints {
				f.Add(PortKey(bpf.Addr(netip.AddrFrom4([4]byte{10, byte(128 + i>>16), byte(i >> 8), byte(i)})), bpf.Port(8080)))
			}
			hits := 0
			const tries = 200_000
			random := rand.New(rand.NewPCG(1, 2))
			for range tries {
				n := random.Uint32()
				if f.has(PortKey(bpf.Addr(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})), bpf.Port(uint16(30000+n>>24)))) {
					hits++
				}
			}
			got := 100 * float64(hits) / tries
			t.Logf("%.2f %% of others look like ours; %.2f %% of the bits are set", got, 100*filterShare(f))
			if got > c.most {
				t.Errorf("%.2f %% of others look like ours, more than %.1f", got, c.most)
			}
		})
	}
}

// filterShare returns the share of set bits, which is the rate of false positives for random
// addresses and ports.
func filterShare(f *Filter) float64 {
	n := 0
	for _, word := range f.read(bitsAt) {
		n += bits.OnesCount64(word)
	}
	return float64(n) / float64(words*64)
}
