package observation_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/access"
	"loxilb/internal/api/httpapi/observation"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/control/store"
	"loxilb/internal/diagnose/rates"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
	"loxilb/test/apitest"
)

// fake provides the rates and health states that a test sets.
type fake struct {
	total    rates.Totals
	window   rates.Window
	loads    map[lb.Key]rates.Load
	watchers int
	waits    int         // future windows
	next     func(*fake) // ends a window while services are read, unless nil
}

func (f *fake) Now() (rates.Totals, rates.Window) { return f.total, f.window }
func (f *fake) Service(key lb.Key) rates.Load {
	if next := f.next; next != nil {
		f.next = nil
		next(f)
	}
	return f.loads[key]
}

func (f *fake) Endpoints(key lb.Key, n int) []rates.Load {
	out := make([]rates.Load, n)
	out[0] = f.loads[key]
	return out
}

func (f *fake) History() rates.History {
	s := rates.Series{Start: time.Unix(0, 0), Step: 5 * time.Second}
	for i := range 12 {
		s.Values = append(s.Values, []float32{float32(i), 0})
	}
	return rates.History{Series: s, Drops: map[string][]float32{"no-route": {1, 2}}}
}

func (f *fake) ServiceHistory(lb.Key) (rates.Series, bool) {
	return rates.Series{Step: time.Minute, Values: [][]float32{{1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}}}, true
}

func (f *fake) Watch() (end func()) {
	f.watchers++
	return func() { f.watchers-- }
}

func (f *fake) Wait(ctx context.Context, _ rates.Window) error {
	if f.waits--; f.waits >= 0 {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// health reports all endpoints of these services as down, and all others as up.
type health map[lb.Key]bool

func (h health) EndpointVerdict(s *lb.Service, _ lb.Endpoint) report.Verdict {
	if h[s.Key] {
		return report.Verdict{Probe: report.HealthDown}
	}
	return report.Verdict{Probe: report.HealthUp}
}

func (h health) EndpointCount() report.HealthCount { return report.HealthCount{Down: len(h)} }

func key(n int) lb.Key {
	return lb.Key{VIP: netip.AddrFrom4([4]byte{20, 0, byte(n >> 8), byte(n)}), Port: 80, Protocol: lb.TCP}
}

// newRates creates services 1 to n with two endpoints each, the second one down. Service i has i
// connections per second.
func newRates(t testing.TB, n int) (*observation.API, *fake) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	st, err := desired.Open(t.TempDir(), log)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{loads: map[lb.Key]rates.Load{}, window: rates.Window{End: time.Unix(1e9, 0).UTC(), Length: 5 * time.Second}}
	_, _, err = st.Commit("test", func(tx *store.Tx) error {
		for i := 1; i <= n; i++ {
			f.loads[key(i)] = rates.Load{Rates: rates.Rates{rates.Connections: float32(i), rates.BytesOut: 1000}, Active: uint64(2 * i), Refused: float32(3 * i)}
			endpoints := []lb.Endpoint{{Addr: netip.MustParseAddr("31.31.31.1"), Port: 8080, Weight: 1}, {Addr: netip.MustParseAddr("31.31.31.2"), Port: 8080, Weight: 2}}
			if err := st.Services.Put(tx, lb.Service{Key: key(i), Name: fmt.Sprint("Web", n-i), Endpoints: endpoints}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return observation.New(observation.Options{
		Sampler: f, Store: st, Health: health{key(2): true},
		DataPath: counted{},
		Sync:     func(*store.Snapshot, lb.Key) servicestate.Sync { return servicestate.SyncApplied },
		Streams:  rest.NewStreams(access.Open(t.TempDir())),
	}), f
}

// counted is a data path in which all services have the same counts, except for the first one,
// which is not applied yet.
type counted struct{}

func (counted) Drops() map[string]uint64 { return nil }

func (counted) EachServiceStats(keys []lb.Key, yield func(int, *report.ServiceStats)) {
	one := report.EndpointStats{Connections: 7, In: report.Traffic{Packets: 8, Bytes: 9}, Handshakes: report.Handshakes{Repeated: 3, Refused: 1, Reset: 1}}
	all := report.EndpointStats{Connections: 70, Handshakes: report.Handshakes{Repeated: 5, Refused: 4}}
	one.Refusals[report.TupleInUse] = 1
	all.Refusals[report.NoEndpoint], all.Refusals[report.TupleInUse] = 4, 1
	for i, k := range keys {
		if k != key(1) {
			yield(i, &report.ServiceStats{EndpointStats: all, Endpoints: []report.EndpointStats{one}})
		}
	}
}

func services(t testing.TB, a *observation.API, params v1.GetServiceRatesParams) (out v1.ServiceRatesList) {
	t.Helper()
	w := httptest.NewRecorder()
	a.GetServiceRates(w, nil, params)
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != 200 {
		t.Fatalf("got %d %s: %v, want no error, code 200", w.Code, w.Body, err)
	}
	return out
}

// TestServices checks that the server sorts, filters and pages services, and returns the number of
// matches.
func TestServices(t *testing.T) {
	t.Parallel()
	a, _ := newRates(t, 12)
	for _, tc := range []struct {
		params  v1.GetServiceRatesParams
		matched int
		want    string // last bytes of the expected addresses
	}{
		{v1.GetServiceRatesParams{}, 12, "1 2 3 4 5 6 7 8 9 10 11 12"},
		{v1.GetServiceRatesParams{Sort: "connections", Limit: 3}, 12, "12 11 10"},
		{v1.GetServiceRatesParams{Sort: "active", Limit: 3, Offset: 10}, 12, "2 1"},
		{v1.GetServiceRatesParams{Sort: "name", Limit: 2}, 12, "12 11"},
		{v1.GetServiceRatesParams{Sort: "down", Limit: 2}, 12, "2 1"},
		{v1.GetServiceRatesParams{Sort: "bytes", Limit: 2}, 12, "1 2"}, // equal: sorted by key
		{v1.GetServiceRatesParams{Match: "web1"}, 3, "1 2 11"},         // Web11, Web10, Web1
		{v1.GetServiceRatesParams{Match: "20.0.0.12:80"}, 1, "12"},
		{v1.GetServiceRatesParams{Service: "20.0.0.5:80/tcp"}, 1, "5"},
		{v1.GetServiceRatesParams{Match: "nothing"}, 0, ""},
		{v1.GetServiceRatesParams{Offset: 100}, 12, ""},
	} {
		list := services(t, a, tc.params)
		var got []string
		for _, s := range list.Services {
			got = append(got, strings.TrimSuffix(strings.TrimPrefix(s.Service, "20.0.0."), ":80/tcp"))
		}
		if strings.Join(got, " ") != tc.want || list.Matched != tc.matched || list.Seconds != 5 {
			t.Errorf("%+v: %v, %d matched, want %s, %d", tc.params, got, list.Matched, tc.want, tc.matched)
		}
	}
	for _, tc := range []struct {
		params v1.GetServiceRatesParams
		code   int
		says   string
	}{
		{v1.GetServiceRatesParams{Sort: "speed"}, 400, "connections, packets, bytes"},
		{v1.GetServiceRatesParams{Limit: -1}, 400, "limit"},
		{v1.GetServiceRatesParams{Offset: -1}, 400, "offset"},
		{v1.GetServiceRatesParams{Service: "x"}, 400, "service"},
		{v1.GetServiceRatesParams{Service: "20.0.9.9:80/tcp"}, 404, "does not exist"},
	} {
		for _, ask := range []func(w http.ResponseWriter){
			func(w http.ResponseWriter) { a.GetServiceRates(w, nil, tc.params) },
			func(w http.ResponseWriter) { a.WatchRates(w, nil, v1.WatchRatesParams(tc.params)) },
		} {
			w := httptest.NewRecorder()
			if ask(w); w.Code != tc.code || !strings.Contains(w.Body.String(), tc.says) {
				t.Errorf("%+v: got %d %s, want code %d, %q in it", tc.params, w.Code, w.Body, tc.code, tc.says)
			}
		}
	}
}

// TestCounters checks that counts of a service and its endpoints are returned on request, and are
// zero for an endpoint that is not applied yet.
func TestCounters(t *testing.T) {
	t.Parallel()
	a, _ := newRates(t, 2)
	list := services(t, a, v1.GetServiceRatesParams{Service: "20.0.0.1:80/tcp"})
	if s := list.Services[0]; s.Counters != nil || s.Endpoints != nil || s.EndpointCount != 2 || s.EndpointsUp != 0 ||
		s.Rates.Connections != 1 || s.Active != 2 || s.RefusedRate != 3 || s.Name != "Web1" {
		t.Errorf("got %+v, want s.Counters == nil, s.Endpoints == nil, s.EndpointCount == 2, s.EndpointsUp == 0, "+
			`s.Rates.Connections == 1, s.Active == 2, s.RefusedRate == 3, s.Name == "Web1"`,
			s)
	}
	list = services(t, a, v1.GetServiceRatesParams{Service: "20.0.0.2:80/tcp", Counters: true, Endpoints: true})
	s := list.Services[0]
	want := v1.Counters{
		Connections: 70, Attempts: 75, RepeatedSyns: 5, FailedHandshakes: 4, RefusedPackets: 5, Refused: 5,
		RefusedBy: []v1.RefusedCount{{Reason: "no-endpoint", Count: 4}, {Reason: "tuple-in-use", Count: 1}},
	}
	if !reflect.DeepEqual(*s.Counters, want) || s.EndpointsDown != 2 || len(s.Endpoints) != 2 {
		t.Errorf("got %+v, want counters %+v and two endpoints that are down", s, want)
	}
	first, second := s.Endpoints[0], s.Endpoints[1]
	if first.Endpoint != "31.31.31.1:8080" || first.State != "down" || first.Rates.Connections != 2 ||
		first.Counters.PacketsIn != 8 || first.Counters.FailedHandshakes != 2 || first.Counters.Attempts != 8 {
		t.Errorf(`got %+v, want first.Endpoint == "31.31.31.1:8080", first.State == "down", first.Rates.Connections == 2, `+
			"first.Counters.PacketsIn == 8, first.Counters.FailedHandshakes == 2, first.Counters.Attempts == 8",
			first)
	}
	list = services(t, a, v1.GetServiceRatesParams{Service: "20.0.0.2:80/tcp", Endpoints: true, Sort: "active", Limit: 1, Offset: 1})
	if all := list.Services[0]; all.EndpointCount != 2 || len(all.Endpoints) != 1 || all.Endpoints[0].Endpoint != second.Endpoint {
		t.Errorf("got %+v, want all.EndpointCount == 2, 1 element in all.Endpoints, all.Endpoints[0].Endpoint == second.Endpoint",
			all)
	}
	if second.Weight != 2 || second.Counters.Attempts+second.Counters.Refused != 0 {
		t.Errorf("got %+v, want second.Weight == 2, second.Counters.Attempts+second.Counters.Refused == 0", second)
	}
}

// TestCountersOfAll checks that each service gets its own counters, and zero if it is not applied
// yet.
func TestCountersOfAll(t *testing.T) {
	t.Parallel()
	a, _ := newRates(t, 2)
	list := services(t, a, v1.GetServiceRatesParams{Counters: true, Endpoints: true}).Services
	if list[0].Counters.Connections != 0 || list[0].Endpoints[0].Counters == nil || list[1].Counters.Connections != 70 || list[1].Endpoints[0].Counters.Connections != 7 {
		t.Errorf("got %+v, %+v, want list[0].Counters.Connections == 0, list[0].Endpoints[0].Counters != nil, "+
			"list[1].Counters.Connections == 70, list[1].Endpoints[0].Counters.Connections == 7",
			list[0], list[1])
	}
}

// TestTotals checks the sums over all services, and the last hour.
func TestTotals(t *testing.T) {
	t.Parallel()
	a, f := newRates(t, 3)
	f.total = rates.Totals{
		Rates: rates.Rates{rates.PacketsIn: 5}, Refused: 4, Tracked: 6, Limit: 100,
		Drops: map[string]rates.Drop{"a": {Packets: 9, Rate: 1}, "b": {Packets: 1, Rate: 2}, "c": {}},
	}
	w := httptest.NewRecorder()
	a.GetRates(w, nil)
	var total v1.TotalRates
	if err := json.Unmarshal(w.Body.Bytes(), &total); err != nil {
		t.Fatal(err)
	}
	if total.Services != 3 || total.Endpoints != 6 || total.EndpointsDown != 1 || total.Rates.PacketsIn != 5 || total.Connections != 6 || total.RefusedRate != 4 ||
		len(total.Drops) != 2 || total.Drops[0].Reason != "b" || total.Drops[1].Packets != 9 {
		t.Errorf("got %+v, want total.Services == 3, total.Endpoints == 6, total.EndpointsDown == 1, total.Rates.PacketsIn == 5, "+
			`total.Connections == 6, total.RefusedRate == 4, 2 elements in total.Drops, total.Drops[0].Reason == "b", total.Drops[1].Packets == 9`,
			total)
	}
	for service, columns := range map[string][2]float32{"": {7, 11}, "20.0.0.1:80/tcp": {8, 9}} {
		w = httptest.NewRecorder()
		a.GetRatesHistory(w, nil, v1.GetRatesHistoryParams{Service: service})
		var h v1.RatesHistory
		if err := json.Unmarshal(w.Body.Bytes(), &h); err != nil {
			t.Fatal(err)
		}
		if h.Series["connectionsActive"][0] != columns[0] || h.Series["refused"][0] != columns[1] || !h.Kept || (h.Drops == nil) != (service != "") {
			t.Errorf("service %q: got %+v, want rates as in the text, and drops only without a service", service, h)
		}
	}
}

// TestWatch checks that a stream sends each window, and that the sampler reads more often while it
// is open.
func TestWatch(t *testing.T) {
	t.Parallel()
	a, f := newRates(t, 3)
	f.waits = 2
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := httptest.NewRecorder()
	time.AfterFunc(100*time.Millisecond, cancel)
	a.WatchRates(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx), v1.WatchRatesParams{Sort: "connections", Limit: 1, Endpoints: true})
	updates := 0
	for lines := bufio.NewScanner(w.Body); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			var u v1.RatesUpdate
			if err := json.Unmarshal([]byte(data), &u); err != nil || u.List.Services[0].Service != "20.0.0.3:80/tcp" || len(u.List.Services[0].Endpoints) != 2 || u.Total.Services != 3 {
				t.Errorf(`got %v: %s, want no error, u.List.Services[0].Service == "20.0.0.3:80/tcp", `+
					"2 elements in u.List.Services[0].Endpoints, u.Total.Services == 3",
					err, data)
			}
			updates++
		}
	}
	if updates != 3 || f.watchers != 0 {
		t.Errorf("%d updates, want 3; %d still watch", updates, f.watchers)
	}
}

// TestOneWindow checks that an update's totals and list belong to the same window as its services,
// even if the window ends while they are read.
func TestOneWindow(t *testing.T) {
	t.Parallel()
	a, f := newRates(t, 1)
	of := func(connections float32) rates.Rates { return rates.Rates{rates.Connections: connections} }
	f.loads[key(1)], f.total.Rates = rates.Load{Rates: of(1)}, of(1)
	ends := func(n float32) func(*fake) {
		return func(f *fake) {
			f.window = rates.Window{End: time.Unix(1e9+int64(n), 0).UTC(), Length: time.Second}
			f.loads[key(1)], f.total.Rates = rates.Load{Rates: of(n)}, of(n)
		}
	}
	f.next = ends(2)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	w := httptest.NewRecorder()
	a.WatchRates(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx), v1.WatchRatesParams{})
	_, data, _ := strings.Cut(w.Body.String(), "data: ")
	var u v1.RatesUpdate
	if err := json.NewDecoder(strings.NewReader(data)).Decode(&u); err != nil {
		t.Fatal(err)
	}
	if u.Total.Rates.Connections != u.List.Services[0].Rates.Connections || u.Total.Time != u.List.Time {
		t.Errorf("the total is %v connections a second until %v, the service has %v until %v",
			u.Total.Rates.Connections, u.Total.Time, u.List.Services[0].Rates.Connections, u.List.Time)
	}
	f.next = ends(3)
	if list := services(t, a, v1.GetServiceRatesParams{}); list.Services[0].Rates.Connections != 3 || list.Time != f.window.End {
		t.Errorf("%v connections a second until %v", list.Services[0].Rates.Connections, list.Time)
	}
}

// TestBounds checks that an update has a bounded number of services, and that the number of
// simultaneous large responses is bounded.
func TestBounds(t *testing.T) {
	t.Parallel()
	const watched, watchedWithEndpoints, largeAnswers = 1000, 50, 4
	a, _ := newRates(t, watched+1)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	for _, c := range []struct {
		params     v1.WatchRatesParams
		code, want int
	}{
		{v1.WatchRatesParams{}, 200, watched},
		{v1.WatchRatesParams{Endpoints: true}, 200, watchedWithEndpoints},
		{v1.WatchRatesParams{Endpoints: true, Limit: 7}, 200, 7},
		{v1.WatchRatesParams{Endpoints: true, Service: "20.0.0.3:80/tcp"}, 200, 1},
		{v1.WatchRatesParams{Limit: watched + 1}, 400, 0},
		{v1.WatchRatesParams{Limit: watchedWithEndpoints + 1, Endpoints: true}, 400, 0},
	} {
		w := httptest.NewRecorder()
		a.WatchRates(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx), c.params)
		if n := strings.Count(w.Body.String(), `"selection"`); w.Code != c.code || n != c.want {
			t.Errorf("%+v: %d, %d services, want %d", c.params, w.Code, n, c.want)
		}
	}
	for range largeAnswers {
		read := apitest.Unread(func(w http.ResponseWriter) { a.GetServiceRates(w, nil, v1.GetServiceRatesParams{}) })
		defer read()
	}
	for limit, code := range map[int]int{0: 503, 101: 503, 100: 200} {
		w := httptest.NewRecorder()
		if a.GetServiceRates(w, nil, v1.GetServiceRatesParams{Limit: limit}); w.Code != code {
			t.Errorf("limit %d: %d %s", limit, w.Code, w.Body)
		}
	}
}

// BenchmarkServices measures the response to top: the first 50 of 10,000 services.
func BenchmarkServices(b *testing.B) {
	a, _ := newRates(b, 10_000)
	for b.Loop() {
		services(b, a, v1.GetServiceRatesParams{Sort: "connections", Limit: 50})
	}
}
