package objects

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"loxilb/internal/lb/netobj"
	"loxilb/test/netnstest/labtest"
)

// TestRoutesLookup checks that one route is found without reading the others, as far as the
// kernel's choice for its first address shows it.
func TestRoutesLookup(t *testing.T) {
	t.Parallel()
	a, _ := labtest.Pair(t)
	k := Routes{kernelOf(t, a)}
	for _, r := range []string{
		"10.6.0.0/16 via 10.1.0.2", "10.7.0.0/16 via 10.1.0.2 metric 100", "10.8.0.0/16 via 10.1.0.2", "10.8.0.0/24 via 10.1.0.3",
		"10.12.0.0/16 via 10.1.0.2", "10.12.0.0/24 via 10.1.0.3", "10.12.255.0/24 via 10.1.0.3",
		"10.13.0.0/16 via 10.1.0.2", "unreachable 10.13.0.0/24", "default via 10.1.0.2", "default via 2001:db8:1::2",
		"10.9.0.0/16 nexthop via 10.1.0.2 nexthop via 10.1.0.3", "10.11.0.0/16 via 10.1.0.2 table 77", "2001:db8:6::/48 via 2001:db8:1::2 proto static",
	} {
		labtest.Run(t, a, append([]string{"ip", "route", "add"}, strings.Fields(r)...)...)
	}
	for _, c := range []struct {
		to, via string
		have    int
		known   bool
	}{
		{"10.6.0.0/16", "10.1.0.2", 1, true},
		{"10.6.0.0/17", "10.1.0.2", 0, true},
		{"10.7.0.0/16", "10.1.0.2", 0, false},  // one with another metric may hide it
		{"10.8.0.0/16", "10.1.0.2", 1, true},   // a smaller network has its first address, not its last one
		{"10.13.0.0/16", "10.1.0.2", 1, true},  // a refusing route has its first address
		{"10.12.0.0/16", "10.1.0.2", 0, false}, // smaller networks have its first and its last address
		{"0.0.0.0/0", "10.1.0.2", 1, true},
		{"::/0", "2001:db8:1::2", 1, true},
		{"128.0.0.0/1", "10.1.0.2", 0, true},
		{"10.8.0.0/24", "10.1.0.2", 1, true},
		{"10.9.0.0/16", "10.1.0.2", 2, true},
		{"10.11.0.0/16", "10.1.0.2", 0, true},
		{"2001:db8:6::/48", "2001:db8:1::2", 1, true},
		{"2001:db8:7::/48", "2001:db8:1::2", 0, true},
	} {
		want := must(netobj.ParseRoute(c.to, c.via, ""))
		have, known := k.Lookup(want)
		if len(have) != c.have || known != c.known {
			t.Errorf("%s: %v, known %v", c.to, have, known)
		}
		all, err := k.All()
		if err != nil || known && len(all[want.Key()]) != len(have) {
			t.Errorf("%s: %v, and of all %v, %v", c.to, have, all[want.Key()], err)
		}
		some, seen, err := k.Subset([]netobj.Route{want})
		if err != nil || len(some) != 1 || seen < len(all) || !slices.Equal(some[want.Key()], all[want.Key()]) {
			t.Errorf("%s: among %d routes %v, and of all %v, %v", c.to, seen, some, all[want.Key()], err)
		}
	}
}

// TestRoutesMany checks that a large table is read without holding it in memory, and only as far as
// the caller wants.
func TestRoutesMany(t *testing.T) {
	t.Parallel()
	const many = 50_000
	a, _ := labtest.Pair(t)
	k := Routes{kernelOf(t, a)}
	var lines strings.Builder
	for i := range many {
		table := []string{"main", "77"}[i&1]
		fmt.Fprintf(&lines, "route add 100.%d.%d.%d/32 via 10.1.0.2 table %s\n", i>>16, i>>8&255, i&255, table)
	}
	file := filepath.Join(t.TempDir(), "routes")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	labtest.Run(t, a, "ip", "-batch", file)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most, seen := heap(), uint64(0), 0
	err := k.EachObserved(func(r *netobj.ObservedRoute) bool {
		if seen++; seen%5000 == 0 {
			most = max(most, heap())
		}
		return r.Dev != "" || t.Failed()
	})
	if err != nil || seen < many/2 || seen > many/2+20 {
		t.Errorf("%d routes of the main table, %v", seen, err)
	}
	if most > before+4<<20 {
		t.Errorf("reading %d routes takes %d kB", seen, (most-before)>>10)
	}
	seen = 0
	if err := k.EachObserved(func(*netobj.ObservedRoute) bool { seen++; return seen < 10 }); err != nil || seen != 10 {
		t.Errorf("%d routes of 10, %v", seen, err)
	}
}

// TestRouteTOS checks that routes to one network come in the kernel's order, the highest TOS first,
// with their TOS.
func TestRouteTOS(t *testing.T) {
	t.Parallel()
	a, _ := labtest.Pair(t)
	k := Routes{kernelOf(t, a)}
	for _, r := range []string{"metric 5", "tos 0x08 metric 100", "tos 0x10 metric 200", "tos 0x10 metric 7"} {
		labtest.Run(t, a, append(strings.Fields("ip route add 10.20.0.0/16 via 10.1.0.2"), strings.Fields(r)...)...)
	}
	var got []string
	err := k.EachObserved(func(r *netobj.ObservedRoute) bool {
		if r.Destination == netip.MustParsePrefix("10.20.0.0/16") {
			got = append(got, fmt.Sprint(r.TOS, " ", r.Metric))
		}
		return true
	})
	if want := []string{"16 7", "16 200", "8 100", "0 5"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}
