package rates

import (
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"
	"unsafe"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// fake is a data path with the counts that a test sets.
type fake struct {
	rows       []report.EndpointCount // in the order of their IDs
	drops      map[string]uint64
	challenged uint64
	refused    map[lb.Key]uint64
	err        error // returned after all rows
	read       int   // number of rows read
	index      map[lb.Key][]uint32
	indexed    int // number of rows read by index
}

func (f *fake) EachCount(wanted func(id uint32, connections, active uint64) bool, yield func(*report.EndpointCount)) error {
	for i := range f.rows {
		if c := f.rows[i]; wanted(c.ID, c.Connections, c.Active) {
			f.read++
			yield(&c)
		}
	}
	return f.err
}

func (f *fake) EachEndpointID(of lb.Key, yield func(int, uint32)) {
	if f.indexed != len(f.rows) {
		f.index, f.indexed = map[lb.Key][]uint32{}, len(f.rows)
		for _, c := range f.rows {
			f.index[c.Service] = append(f.index[c.Service], c.ID)
		}
	}
	for n, id := range f.index[of] {
		yield(n, id)
	}
}

func (f *fake) EachRefused(yield func(lb.Key, uint64)) error {
	for key, packets := range f.refused {
		yield(key, packets)
	}
	return nil
}

func (f *fake) Drops() map[string]uint64    { return maps.Clone(f.drops) }
func (f *fake) Occupancy() (uint64, uint64) { return 7, 1000 }
func (f *fake) Fullness() (report.Pressure, error) {
	return report.Pressure{HalfOpenTCP: 2, HalfOpenOthers: 1}, nil
}
func (f *fake) Jiffy() time.Duration                { return 4 * time.Millisecond }
func (f *fake) Challenges() (uint64, uint64, error) { return f.challenged, 0, nil }

// bench is a sampler with a fake data path and a clock.
type bench struct {
	*Sampler
	f     *fake
	clock time.Time
}

func newBench(rows ...report.EndpointCount) *bench {
	b := &bench{f: &fake{rows: rows, drops: map[string]uint64{}}, clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	b.Sampler = newSampler(b.f, slog.New(slog.DiscardHandler), func() time.Time { return b.clock })
	return b
}

// after advances the time, and then reads all counters.
func (b *bench) after(d time.Duration) {
	b.clock = b.clock.Add(d)
	b.sample(b.clock)
}

// grow increases the counts of an endpoint.
func (b *bench) grow(i int, connections, bytes uint64) {
	b.f.rows[i].Connections += connections
	b.f.rows[i].In.Bytes += bytes
}

func (b *bench) total() Rates {
	t, _ := b.Now()
	return t.Rates
}

func key(n int) lb.Key {
	return lb.Key{VIP: netip.AddrFrom4([4]byte{20, byte(n >> 16), byte(n >> 8), byte(n)}), Port: 80, Protocol: lb.TCP}
}

func row(id uint32, of int, connections, bytes uint64) report.EndpointCount {
	c := report.EndpointCount{ID: id, Service: key(of), Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{31, 0, byte(id >> 8), byte(id)}), 8080)}
	c.Connections, c.Active, c.In.Bytes = connections, 1, bytes
	return c
}

// TestRates checks that rates are the increase in the window, for endpoints, services and the
// totals, without the counts of earlier processes.
func TestRates(t *testing.T) {
	t.Parallel()
	b := newBench(row(0, 1, 1e9, 1e15), row(1, 1, 0, 0), row(700, 2, 1e9, 1e15))
	b.f.drops["no-route"], b.f.challenged = 1e9, 1e9
	b.after(0)
	if got := b.total(); got != (Rates{}) {
		t.Errorf("what earlier processes have counted is a rate: %v", got)
	}
	b.grow(0, 50, 5000)
	b.grow(1, 5, 500)
	b.f.rows[1].Handshakes = report.Handshakes{Repeated: 10, Refused: 5, Reset: 5, Unreachable: 5}
	b.f.drops["no-route"] += 20
	b.f.challenged += 30
	b.after(5 * time.Second)
	want := Rates{Connections: 11, BytesIn: 1100, RepeatedSYNs: 2, FailedHandshakes: 3}
	now, window := b.Now()
	if now.Rates != want || now.Drops["no-route"] != (Drop{1e9 + 20, 4}) || now.Dropped != 4 || now.Challenged != 6 || now.Tracked != 7 || now.HalfOpen != 3 {
		t.Errorf(`got %+v, want now.Rates == want, now.Drops["no-route"] == Drop{1e9 + 20, 4}, `+
			"now.Dropped == 4, now.Challenged == 6, now.Tracked == 7, now.HalfOpen == 3",
			now)
	}
	if window.Length != 5*time.Second || !window.End.Equal(b.clock) {
		t.Errorf("got %+v, want window.Length == 5*time.Second, window.End == b.clock", window)
	}
	if got := b.Service(key(1)); got != (Load{Rates: want, Active: 2}) {
		t.Errorf("got %+v, want Load{Rates: want, Active: 2}", got)
	}
	if got := b.Endpoints(key(1), 2); got[0].Rates[Connections] != 10 || got[1].Rates != (Rates{Connections: 1, BytesIn: 100, RepeatedSYNs: 2, FailedHandshakes: 3}) {
		t.Errorf("got %+v, want got[0].Rates[Connections] == 10, got[1].Rates == Rates{Connections: 1, "+
			"BytesIn: 100, RepeatedSYNs: 2, FailedHandshakes: 3}",
			got)
	}
	b.after(5 * time.Second)
	if got := b.total(); got != (Rates{}) || b.Service(key(1)) != (Load{Active: 2}) {
		t.Errorf("nothing was counted, and the rates are %v", got)
	}
}

// TestRefused checks that the number of refused clients per second is in the load and the history
// of a service, also without a connection, and in the totals. Counts of earlier processes, and of a
// service that is created again, are not rates.
func TestRefused(t *testing.T) {
	t.Parallel()
	b := newBench(row(0, 1, 0, 0))
	b.f.refused = map[lb.Key]uint64{key(1): 1000, key(2): 500}
	b.after(0)
	b.after(5 * time.Second)
	if now, _ := b.Now(); now.Refused != 0 || b.Service(key(1)).Refused != 0 {
		t.Errorf("what earlier processes have counted is a rate: %+v", now)
	}
	b.f.refused[key(1)] += 50 // with one connection
	b.f.refused[key(2)] += 100
	b.f.refused[key(3)] = 20 // its first refusals
	b.after(5 * time.Second)
	for n, want := range map[int]float32{1: 10, 2: 20, 3: 4} {
		if got := b.Service(key(n)).Refused; got != want {
			t.Errorf("service %d: %v refused a second, want %v", n, got, want)
		}
		if s, kept := b.ServiceHistory(key(n)); !kept || slices.Max(s.Values[refusedColumn]) == 0 {
			t.Errorf("service %d: history %v, %t", n, s.Values, kept)
		}
	}
	if now, _ := b.Now(); now.Refused != 34 {
		t.Errorf("%v refused a second in all", now.Refused)
	}
	h := b.History().Values[totalsRefusedColumn]
	if got := h[len(h)-1]; got != 34 {
		t.Errorf("the history has %v", h)
	}
	b.f.refused[key(2)] = 3
	delete(b.f.refused, key(3))
	b.after(5 * time.Second)
	if now, _ := b.Now(); now.Refused != 0 {
		t.Errorf("a service that was deleted and made again: %v a second", now.Refused)
	}
}

// P58 A rate is never negative and never higher than the count of its time, whatever restarts, is
// replaced, decreases or cannot be read
func TestNeverWrong(t *testing.T) {
	t.Parallel()
	b := newBench(row(0, 1, 1e9, 1e15), row(1, 1, 1e9, 1e15))
	b.after(0)
	check := func(what string, want float32) {
		t.Helper()
		b.f.drops["no-route"]++
		b.after(time.Second)
		for q, r := range b.total() {
			if r < 0 || r > 1e6 {
				t.Errorf("%s: %v %v a second", what, r, q)
			}
		}
		if got := b.total()[Connections]; got != want {
			t.Errorf("%s: %v connections a second, want %v", what, got, want)
		}
		if now, _ := b.Now(); now.Dropped < 0 || now.Dropped > 1 || now.Challenged != 0 {
			t.Errorf("%s: got %+v, want now.Dropped >= 0, now.Dropped <= 1, now.Challenged == 0", what, now)
		}
	}
	b.f.rows[0].In.Bytes -= 1e14
	b.grow(0, 5, 0)
	check("one counter went back", 0)
	b.grow(0, 5, 0)
	check("after that", 5)
	b.f.rows[0] = row(0, 2, 3, 300)
	check("the row is another service's now, which has counted since", 3)
	b.f.rows[1] = row(1, 1, 4, 400)
	check("the row is the same endpoint's, and was cleared", 0)
	b.f.rows = append(b.f.rows, row(2, 3, 6, 600))
	check("a new service", 6)
	b.f.rows = b.f.rows[:1]
	check("services are gone", 0)
	b.f.err = errors.New("no memory")
	b.grow(0, 7, 700)
	check("a reading fails: what the last one said stays", 0)
	b.f.err = nil
	b.grow(0, 7, 700)
	check("the next one tells what the failed one has read, too", 7) // 14 in two seconds
	clear(b.f.drops)
	check("drops began anew", 0)
	b.clock = b.clock.Add(-time.Second)
	b.grow(0, 7, 700)
	b.after(0)
	if got := b.total(); got != (Rates{}) {
		t.Errorf("no time has passed, and the rates are %v", got)
	}
}

// TestIdleIsNotRead checks that idle endpoints are not read and busy ones are, so reading takes
// long only when needed.
func TestIdleIsNotRead(t *testing.T) {
	t.Parallel()
	var rows []report.EndpointCount
	for i := range 1000 {
		rows = append(rows, row(uint32(i), i, uint64(i%2), 0))
		rows[i].Active = 0
	}
	b := newBench(rows...)
	b.after(0)
	if b.f.read != 500 {
		t.Errorf("%d endpoints were read, want those with connections", b.f.read)
	}
	b.f.read = 0
	b.grow(3, 1, 100)
	b.f.rows[4].Connections, b.f.rows[4].Active = 1, 1
	b.after(time.Second)
	if b.f.read != 2 {
		t.Errorf("%d endpoints were read, want the one with a new connection and the one with an active one", b.f.read)
	}
	b.f.rows[4].Active = 0
	b.f.rows[4].In.Bytes = 500
	b.f.read = 0
	b.after(time.Second)
	if b.f.read != 1 || b.total()[BytesIn] != 500 {
		t.Errorf("%d endpoints were read, want the one whose connection has just ended; %v", b.f.read, b.total())
	}
}

// TestPause checks that the interval of readings depends on watchers and on the duration of a
// reading.
func TestPause(t *testing.T) {
	t.Parallel()
	b := newBench()
	check := func(cost, want time.Duration) {
		t.Helper()
		if got := b.pause(cost); got != want {
			t.Errorf("pause of %v, want %v", got, want)
		}
	}
	check(time.Millisecond, 5*time.Second)
	check(200*time.Millisecond, 40*time.Second)
	end := b.Watch()
	check(time.Millisecond, time.Second)
	check(200*time.Millisecond, 2*time.Second)
	check(time.Hour, time.Minute)
	select {
	case <-b.woken:
	default:
		t.Error("no waiting reader was woken")
	}
	end()
	check(0, 5*time.Second)
}

// TestHistory checks the averages of each step of the last hour, for any times of reading.
func TestHistory(t *testing.T) {
	t.Parallel()
	b := newBench(row(0, 1, 0, 0))
	b.after(0)
	for range 4 {
		b.grow(0, 30, 0)
		b.f.drops["no-route"] += 6
		b.after(3 * time.Second)
	}
	h := b.History()
	connections, drops := h.Values[Connections], h.Drops["no-route"]
	if len(connections) != 3 || connections[0] != 10 || connections[1] != 10 || connections[2] != 10 || len(drops) != 3 || drops[2] != 2 {
		t.Errorf("got %v, %v, want 3 elements, connections[0] == 10, "+
			"connections[1] == 10, connections[2] == 10, 3 elements in drops, drops[2] == 2",
			connections, drops)
	}
	if h.Step != 5*time.Second || !h.Start.Equal(b.clock.Add(-12*time.Second)) {
		t.Errorf("%v from %v on", h.Step, h.Start)
	}
	for range 700 {
		b.grow(0, 100, 0)
		b.after(10 * time.Second)
	}
	h = b.History()
	if connections = h.Values[Connections]; len(connections) != totalsSteps {
		t.Fatalf("%d steps", len(connections))
	}
	for i, n := range connections {
		if n < 9.99 || n > 10.01 {
			t.Errorf("step %d: %v", i, n)
		}
	}
	one, kept := b.ServiceHistory(key(1))
	if n := one.Values[Connections]; !kept || len(n) != serviceSteps || n[0] < 9.99 || n[serviceSteps-1] > 10.01 || one.Step != 15*time.Second {
		t.Errorf("got %v, %v, want a kept history of %d steps of 15 s, each with 10 per second", n, kept, serviceSteps)
	}
	if none, kept := b.ServiceHistory(key(2)); !kept || none.Values[Connections][0] != 0 {
		t.Errorf("a service without connections: %v, %v", none, kept)
	}
	b.f.rows[0].Active = 0
	b.after(3 * time.Hour)
	b.grow(0, 1, 0)
	b.after(10 * time.Second)
	if h = b.History(); h.Values[Connections][0] != 0 || len(h.Values[Connections]) != totalsSteps {
		t.Errorf("after hours of silence: %v", h.Values[Connections])
	}
}

// TestBounded checks that memory is bounded: rows by the data path, services by those with
// connections, and histories by a limit.
func TestBounded(t *testing.T) {
	t.Parallel()
	if n := unsafe.Sizeof(endpoint{}); n > 184 {
		t.Errorf("%d bytes for each endpoint", n)
	}
	const services = maxHistories + 500
	var rows []report.EndpointCount
	for i := range services {
		rows = append(rows, row(uint32(i), i, 0, 0))
		rows[i].Active = 0
	}
	b := newBench(rows...)
	b.after(0)
	if len(b.services) != 0 || len(b.blocks) != 0 {
		t.Errorf("services without connections are kept: %d, %d blocks", len(b.services), len(b.blocks))
	}
	for i := range rows {
		b.grow(i, 1, 100)
	}
	b.after(time.Minute)
	if len(b.services) != services || b.histories != maxHistories {
		t.Errorf("%d services, %d histories", len(b.services), b.histories)
	}
	if _, kept := b.ServiceHistory(key(services - 1)); kept && b.services[key(services-1)].history == nil {
		t.Error("the answer claims a history that is not kept")
	}
	b.f.rows = b.f.rows[:services/2] // deletes the others
	b.after(time.Minute)
	b.after(time.Minute)
	if len(b.services) != services/2 {
		t.Errorf("%d services, of which %d exist", len(b.services), services/2)
	}
	b.after(time.Hour)
	b.after(time.Minute)
	if len(b.services) != 0 || b.histories != 0 {
		t.Errorf("after an hour of silence %d services are kept, %d histories", len(b.services), b.histories)
	}
}

// TestRecent checks that the recent state is that of the last handshakes, failed or successful. A
// few losses among many successes and silence do not change it. A row that is reused, also by the
// same endpoint, starts empty.
func TestRecent(t *testing.T) {
	t.Parallel()
	type window struct{ made, failed uint64 }
	for _, c := range []struct {
		windows []window
		want    Recent
	}{
		{[]window{{5, 0}, {3, 0}}, Recent{Made: 8}},
		{[]window{{1000, 0}, {2, 3}, {0, 0}, {1, 1}}, Recent{Failed: 4}},
		{[]window{{1, 4}, {0, 0}, {3, 0}}, Recent{Made: 3}},
		{[]window{{100, 1}, {100, 40}}, Recent{Made: 99}},
	} {
		var l Recent
		for _, w := range c.windows {
			l.follow(&counts{Connections: w.made, RepeatedSYNs: w.failed})
		}
		if l != c.want {
			t.Errorf("%v: got %+v, want %+v", c.windows, l, c.want)
		}
	}
	e := endpoint{identity: 1, window: 1, recent: Recent{Made: 9}}
	if e.read(2, &report.EndpointCount{}, false); e.recent != (Recent{}) {
		t.Errorf("another endpoint: %+v", e.recent)
	}
	e = endpoint{identity: 1, window: 1, recent: Recent{Failed: 3}, last: counts{Connections: 3}}
	if e.read(1, &report.EndpointCount{}, false); e.recent != (Recent{}) {
		t.Errorf("the same endpoint, added again: %+v", e.recent)
	}
}

// TestOutageIsSeen checks that the history of a service, and of the totals, shows an outage of 40
// s, wherever it begins: one step has no connection, and the steps around it are not affected.
func TestOutageIsSeen(t *testing.T) {
	t.Parallel()
	for begin := 600 * time.Second; begin < 600*time.Second+serviceStep; begin += time.Second {
		b := newBench(row(0, 1, 0, 0))
		var next time.Duration // the next reading
		for at := time.Duration(0); at < 20*time.Minute; at += time.Second {
			if at == next {
				b.after(0)
				next += everyUnwatched
			}
			if at < begin || at >= begin+40*time.Second {
				b.grow(0, 20, 0)
			}
			b.clock = b.clock.Add(time.Second)
		}
		one, _ := b.ServiceHistory(key(1))
		all := b.History()
		for name, s := range map[string]Series{"service": one, "totals": all.Series} {
			values := s.Values[Connections]
			at := int(begin / s.Step)
			if least := slices.Min(values[at : at+4]); least != 0 {
				t.Errorf("%s, outage after %v: %v connections/s at least", name, begin, least)
			}
			for _, around := range []int{at - 3, at + int(60*time.Second/s.Step)} {
				if n := values[around]; n < 19.5 || n > 20.5 {
					t.Errorf("%s, outage after %v: %v connections/s at step %d, want 20", name, begin, n, around)
				}
			}
		}
	}
}

// TestHandshakeTimes checks that endpoints, services and the history have the durations of the
// latest handshakes, in the data path's buckets. Without handshakes there are no durations, and
// another endpoint in a row starts empty.
func TestHandshakeTimes(t *testing.T) {
	t.Parallel()
	b := newBench(row(0, 1, 0, 0), row(1, 1, 0, 0))
	b.after(0)
	shake := func(i, bucket int, n uint64) {
		b.f.rows[i].Connections += n
		b.f.rows[i].Handshakes.Answered[bucket] += n
	}
	shake(0, 0, 98)
	shake(1, 5, 2)
	b.after(5 * time.Second)
	want := []Times{{Count: 98, Median: 4 * time.Millisecond, P99: 4 * time.Millisecond}, {Count: 2, Median: 128 * time.Millisecond, P99: 128 * time.Millisecond}}
	for i, load := range b.Endpoints(key(1), 2) {
		if load.Times != want[i] {
			t.Errorf("endpoint %d: %+v, want %+v", i, load.Times, want[i])
		}
	}
	both := Times{Count: 100, Median: 4 * time.Millisecond, P99: 128 * time.Millisecond}
	if got := b.Service(key(1)).Times; got != both {
		t.Errorf("service: %+v, want %+v", got, both)
	}
	b.after(20 * time.Second)
	if got := b.Service(key(1)).Times; got != both {
		t.Errorf("service without more handshakes: %+v, want %+v", got, both)
	}
	for range 4 {
		shake(0, 2, 500)
		b.after(15 * time.Second)
	}
	if got := b.Service(key(1)).Times; got.Count > maxLatest || got.Median != 16*time.Millisecond || got.P99 != 16*time.Millisecond {
		t.Errorf("after 2,000 slower ones: %+v", got)
	}
	s, _ := b.ServiceHistory(key(1))
	if s.Median[0] != 0.004 || s.P99[0] != 0.128 || s.Median[1] != 0 || s.P99[1] != 0 || s.Median[len(s.Median)-1] != 0.016 || len(s.P99) != len(s.Values[0]) {
		t.Errorf("history: %v, %v", s.Median, s.P99)
	}
	b.f.rows[0] = row(0, 1, 5, 0)
	b.f.rows[0].Addr = netip.MustParseAddrPort("9.9.9.9:9")
	b.after(time.Second)
	if got := b.Endpoints(key(1), 1)[0].Times; got != (Times{}) {
		t.Errorf("another endpoint in the row: %+v", got)
	}
}
