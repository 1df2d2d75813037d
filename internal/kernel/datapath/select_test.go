package datapath

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"loxilb/internal/control/compile"
	"loxilb/internal/lb"
	"loxilb/test/dptest"
)

// opener opens connections of one service by SYNs.
type opener struct {
	t       testing.TB
	d       *Datapath
	service lb.Service
}

// newOpener returns an opener with a data path that other tests use later.
func newOpener(t testing.TB, line string) *opener {
	t.Helper()
	s := parseService(t, line)
	return openerOf(t, borrow(t, s.Protocol), s)
}

// newOwnOpener returns an opener with a data path of its own.
func newOwnOpener(t testing.TB, line string) *opener {
	t.Helper()
	d := loadOwn(t)
	t.Cleanup(func() { d.Close() })
	return openerOf(t, d, parseService(t, line))
}

func parseService(t testing.TB, line string) lb.Service {
	t.Helper()
	s, err := lb.ParseService(line)
	if err == nil {
		err = s.Validate()
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openerOf(t testing.TB, d *Datapath, s lb.Service) *opener {
	t.Helper()
	table := compile.Service(s, nil, 0, nil)
	if err := d.Apply([]Change{{Key: table.Key, Table: &table}})[0]; err != nil {
		t.Fatal(err)
	}
	return &opener{t, d, s}
}

// open opens connection number i and returns how long the program took.
func (o *opener) open(i int) time.Duration {
	o.t.Helper()
	client := netip.AddrFrom4([4]byte{198, 51, byte(i >> 14), byte(i >> 6)})
	frame := dptest.TCPFrame(client, o.service.VIP, uint16(1024+i&63), o.service.Port)
	frame[14+20+13] = 2 // SYN
	_, took, err := program(o.t, o.d).Benchmark(frame, 1, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	return took
}

// active returns the number of connections of each endpoint.
func (o *opener) active() []uint64 {
	stats, ok := o.d.ServiceStats(compile.Key(o.service.Key))
	if !ok {
		o.t.Fatal("no such service")
	}
	var out []uint64
	for _, e := range stats.Endpoints {
		out = append(out, e.Active)
	}
	return out
}

// endpointList returns n endpoints as text; weight returns the weight of each.
func endpointList(n int, weight func(i int) int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("192.0.2.%d:%d:%d", 1+i%200, 8000+i, weight(i)))
	}
	return strings.Join(list, ",")
}

// TestLoadsAreGathered checks that a service that begins to compare loads includes the connections
// that each CPU has counted separately, and that counts stay exact, also when it no longer compares
// loads.
func TestLoadsAreGathered(t *testing.T) {
	t.Parallel()
	const first = "192.0.2.1:8080"
	o := newOpener(t, "198.51.100.1:80/tcp endpoints="+first)
	apply := func(algorithm, endpoints string) {
		t.Helper()
		s, err := lb.ParseService("198.51.100.1:80/tcp select=" + algorithm + " endpoints=" + endpoints)
		if err != nil {
			t.Fatal(err)
		}
		table := compile.Service(s, nil, 0, nil)
		if err := o.d.Apply([]Change{{Key: table.Key, Table: &table}})[0]; err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		o.open(i)
	}
	apply("lc", first+",192.0.2.2:8080")
	if got := o.active(); !slices.Equal(got, []uint64{10, 0}) {
		t.Errorf("once loads are compared: %v", got)
	}
	for i := range 10 {
		o.open(10 + i)
	}
	if got := o.active(); !slices.Equal(got, []uint64{10, 10}) {
		t.Errorf("10 connections later: %v, want 10 of each", got)
	}
	apply("rr", first+",192.0.2.2:8080")
	for i := range 4 {
		o.open(20 + i)
	}
	if got := o.active(); !slices.Equal(got, []uint64{12, 12}) {
		t.Errorf("round robin after the change: %v, want 12 of each", got)
	}
}

// TestPowerOfTwo checks that with more than 64 endpoints the better of two random ones comes close
// to the fewest connections, also by weight.
//
// V159 power of two choices: no endpoint is far from its share
func TestPowerOfTwo(t *testing.T) {
	for name, weight := range map[string]func(int) int{
		"equal": func(int) int { return 1 }, "mixed": func(i int) int { return 1 + i%3 },
	} {
		t.Run(name, func(t *testing.T) {
			o := newOpener(t, "198.18.0.1:80/tcp select=lc endpoints="+endpointList(90, weight))
			const connections = 9000
			for i := range connections {
				o.open(i)
			}
			var sum, most uint64
			weights := 0
			for i := range o.active() {
				weights += weight(i)
			}
			for i, n := range o.active() {
				sum += n
				share := connections * weight(i) / weights
				if int(n) > share+12 || int(n) < share-30 {
					t.Errorf("endpoint %d of weight %d has %d connections, want about %d", i, weight(i), n, share)
				}
				most = max(most, n)
			}
			if sum != connections {
				t.Errorf("%d connections, want %d", sum, connections)
			}
			t.Logf("most %d, least %d", most, slices.Min(o.active()))
		})
	}
}

// TestSharesByWeight checks that hash and random distribute connections by weight, within
// statistical limits.
func TestSharesByWeight(t *testing.T) {
	for _, algorithm := range []string{"hash", "random", "persist"} {
		t.Run(algorithm, func(t *testing.T) {
			o := newOpener(t, "198.18.0.1:80/tcp select="+algorithm+" endpoints=192.0.2.1:80:5,192.0.2.2:80:3,192.0.2.3:80:2,192.0.2.4:80:0")
			const connections = 10000
			for i := range connections {
				if algorithm == "persist" {
					i *= 64 // a different client each
				}
				o.open(i)
			}
			for i, n := range o.active() {
				want := connections / 10 * [4]int{5, 3, 2, 0}[i]
				if d := int(n) - want; d > 400 || d < -400 || want == 0 && n > 0 { // eight standard deviations
					t.Errorf("endpoint %d has %d connections, want about %d", i, n, want)
				}
			}
			t.Logf("%d", o.active())
		})
	}
}

// TestLeastConnections checks that with up to 64 endpoints the counts are as even as possible.
func TestLeastConnections(t *testing.T) {
	o := newOpener(t, "198.18.0.1:80/tcp select=lc endpoints="+endpointList(64, func(int) int { return 1 }))
	for i := range 640 {
		o.open(i)
	}
	for i, n := range o.active() {
		if n != 10 {
			t.Errorf("endpoint %d has %d connections, want 10", i, n)
		}
	}
}

// BenchmarkOpen measures new connections with each algorithm. `-bench Open -benchtime 20000x` opens
// the same number in each.
func BenchmarkOpen(b *testing.B) {
	one := func(int) int { return 1 }
	for _, c := range []struct {
		algorithm string
		endpoints int
	}{
		{"rr", 3}, {"priority", 3}, {"hash", 3}, {"random", 3}, {"persist", 3}, {"lc", 3}, {"lc", 64}, {"lc", 90},
	} {
		b.Run(fmt.Sprintf("%s/%d", c.algorithm, c.endpoints), func(b *testing.B) {
			o := newOpener(b, "198.18.0.1:80/tcp select="+c.algorithm+" endpoints="+endpointList(c.endpoints, one))
			all := make([]time.Duration, b.N)
			for i := range all {
				all[i] = o.open(i)
			}
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2]), "ns/median")
			b.ReportMetric(float64(all[len(all)/10]), "ns/best-tenth")
		})
	}
}
