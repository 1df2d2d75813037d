package tables

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb"
	"loxilb/test/dptest"
)

// TestManySources writes the longest allowed list, exchanges it for another one of the same length,
// changes part of it, and removes it.
func TestManySources(t *testing.T) {
	d, err := open(loader.Settings{Connections: 1024})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	long := func(first byte) []netip.Prefix {
		list := make([]netip.Prefix, lb.MaxSourcesPerService)
		for i := range list {
			list[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte{first + byte(i>>16), byte(i >> 8), byte(i), 0}), 24)
		}
		return list
	}
	list := long(60)
	table := bpf.ServiceTable{
		Key:       bpf.TcServiceKey{Vip: bpf.Addr(netip.MustParseAddr("20.0.0.1")), Port: bpf.Port(80), Protocol: 6},
		Endpoints: []bpf.EndpointTable{{Addr: bpf.Addr(netip.MustParseAddr("10.0.0.1")), Port: bpf.Port(80), Weight: 1}},
		Slots:     []uint32{0},
	}
	apply := func(what string) {
		t.Helper()
		start := time.Now()
		if err := d.Apply([]Change{{Key: table.Key, Table: &table}})[0]; err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		t.Logf("%s: %v", what, time.Since(start))
		var have []netip.Prefix
		if err := rows.EachBatch(d.c.Maps.AllowedSources, rows.All, func(keys []bpf.TcSourceKey, _ []uint8) {
			for _, k := range keys {
				have = append(have, prefixOf(k))
			}
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(lb.NormalSources(have), table.Sources) {
			t.Errorf("%s: the trie has %d prefixes, want %d", what, len(have), len(table.Sources))
		}
	}
	table.Sources = long(20)
	apply("1,000,000 prefixes")
	table.Sources = list
	apply("1,000,000 others")
	table.Sources = list[:1000]
	apply("1,000 of them")
	table.Sources = slices.Concat(list[:500], list[501:1000])
	apply("one less")
	table.Sources = list[:1000]
	apply("one more")
	table.Sources = nil
	apply("none")
}

// TestAdoptSources checks that nothing is left of a list that a killed process had begun to add, or
// had not removed completely, as it could apply later. A list in use stays.
func TestAdoptSources(t *testing.T) {
	d, err := open(loader.Settings{Connections: 1024, PinDir: dptest.PinDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.Close() }()
	prefixes := func(of sourceList) (list []netip.Prefix) {
		t.Helper()
		if err := rows.Each(d.c.Maps.AllowedSources, func(k bpf.TcSourceKey, _ uint8) {
			if _, l := listOf(k); l == of {
				list = append(list, prefixOf(k))
			}
		}); err != nil {
			t.Fatal(err)
		}
		return lb.NormalSources(list)
	}
	list := []netip.Prefix{netip.MustParsePrefix("50.0.0.0/8"), netip.MustParsePrefix("60.1.0.0/16")}
	both := Change{Key: serviceKey(1), Table: table(1, 1)}
	both.Table.Sources, both.Table.Denied = list[:1], list[1:]
	apply(t, d, both)
	row := d.services[serviceKey(1)].row
	row.Flags &^= serviceDenies
	if err := d.c.Maps.Services.Put(serviceKey(1), row); err != nil {
		t.Fatal(err)
	}
	d = reload(t, d)
	if allowed, denied := prefixes(allowedSources), prefixes(deniedSources); !slices.Equal(allowed, list[:1]) || denied != nil {
		t.Errorf("may connect: %v, may not: %v; want %v and none", allowed, denied, list[:1])
	}
	apply(t, d, both)
	if allowed, denied := prefixes(allowedSources), prefixes(deniedSources); !slices.Equal(allowed, list[:1]) || !slices.Equal(denied, list[1:]) {
		t.Errorf("applied again, may connect: %v, may not: %v; want %v and %v", allowed, denied, list[:1], list[1:])
	}
}

// TestRangeKeys checks that the prefixes of a range cover its ports, each once, and no other.
func TestRangeKeys(t *testing.T) {
	t.Parallel()
	for _, r := range [][2]uint16{{1, 2}, {8080, 8090}, {1, 65534}, {2, 65535}, {32768, 65535}, {65534, 65535}, {1023, 1025}} {
		keys := rangeKeys(bpf.TcServiceKey{Port: bpf.Port(r[0])}, r[1])
		if len(keys) > 30 {
			t.Errorf("%v: %d prefixes", r, len(keys))
		}
		var have [65536]int
		for _, k := range keys {
			first := int(bpf.Port(k.Port))
			for i := range 1 << (rangeFixedBits + portBits - int(k.PrefixLength)) {
				have[first+i]++
			}
		}
		for port, n := range have {
			if within := port >= int(r[0]) && port <= int(r[1]); (n == 1) != within || n > 1 {
				t.Fatalf("%v: port %d is there %d times", r, port, n)
			}
		}
	}
}
