package metrics

import (
	"compress/gzip"
	"flag"
	"io"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"loxilb/internal/desired"
	"loxilb/internal/lb"
	"loxilb/internal/status"
	"loxilb/internal/store"
)

type fake struct{}

func (fake) Endpoints(yield func(*lb.EndpointHealth) bool) {
	for i, state := range []lb.HealthState{lb.HealthUp, lb.HealthDown, lb.HealthUnknown} {
		e := &lb.EndpointHealth{State: state, Changes: uint64(i), Failures: 2 * i, AvgDelay: time.Duration(2-i) * time.Millisecond}
		e.Addr, e.Probe = netip.AddrFrom4([4]byte{31, 31, 31, byte(1 + i)}), lb.Probe{Type: lb.ProbeTCP, Port: 5001}
		if i == 2 {
			e.Name = `a "b"`
		}
		if !yield(e) {
			return
		}
	}
}

func (fake) ServiceStats(k lb.Key) (lb.ServiceStats, bool) {
	if k.Protocol == lb.UDP {
		return lb.ServiceStats{}, false
	}
	shakes := lb.Handshakes{Opened: 7, Answered: [lb.HandshakeBuckets]uint64{3, 1, 10: 1}, Repeated: 4, Refused: 1, Reset: 2, Unreachable: 5}
	first := lb.EndpointStats{Handshakes: shakes, Connections: 7, Active: 2, In: lb.Traffic{Packets: 30, Bytes: 3000}, Out: lb.Traffic{Packets: 20, Bytes: 2000}}
	return lb.ServiceStats{EndpointStats: first, Endpoints: []lb.EndpointStats{first, {}}, NoEndpoint: 5, Refused: 6}, true
}
func (fake) Jiffy() time.Duration                   { return 4 * time.Millisecond }
func (fake) NextHopsFull() uint64                   { return 5 }
func (fake) IdleEnds() lb.IdleEnds                  { return lb.IdleEnds{Told: 6, Untold: 7} }
func (fake) XDP() ([]string, string, uint64)        { return []string{"eth0"}, "native", 12 }
func (fake) Drops() map[string]uint64               { return map[string]uint64{"no-endpoint": 5, "bad-checksum": 0} }
func (fake) Occupancy() (connections, limit uint64) { return 2, 262144 }
func (fake) Pressure() lb.Pressure {
	return lb.Pressure{HalfOpenTCP: 7, HalfOpenOthers: 2, HalfOpenMax: 65536, Challenged: 9, Answered: 3, KnownClients: 4}
}
func (fake) Counts() map[string]map[status.State]int {
	return map[string]map[status.State]int{"service": {status.Applied: 2, status.Failed: 1}}
}

func newMetrics(t *testing.T, src Source) *Metrics {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	st, err := desired.Open("", log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	_, _, err = st.Commit("test", func(tx *store.Tx) error {
		for _, line := range []string{
			"20.20.20.1:2020/tcp endpoints=31.31.31.1:5001,32.32.32.1:5001:0 name=web",
			"20.20.20.1:2021/tcp endpoints=31.31.31.1:5002,32.32.32.1:5002 name=web",
			"[2001:db8::1]:53/udp endpoints=[2001:db8::2]:53",
		} {
			s, err := lb.ParseService(line)
			if err != nil {
				return err
			}
			if err := st.Services.Put(tx, s); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(st, src, Build{Version: "1.2.3", Kernel: "6.18", Hook: "tcx"}, log)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	var ours strings.Builder
	for line := range strings.Lines(w.Body.String()) {
		if strings.Contains(line, "loxilb_") {
			ours.WriteString(line)
		}
	}
	return ours.String()
}

func TestScrape(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, fake{})
	m.Observe("GET", 200)
	m.Observe("BREW", 418)
	got := scrape(t, m)
	golden(t, "testdata/scrape.txt", got)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	if families, err := parser.TextToMetricFamilies(strings.NewReader(got)); err != nil || len(families) != 54 {
		t.Errorf("%d families, %v", len(families), err)
	}
	problems, err := promlint.New(strings.NewReader(got)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

// Dashboards made for either names of the contract read the same.
func TestLegacyNames(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, fake{})
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	all := "\n" + w.Body.String()
	valuesOf := func(name string) (list []string) {
		for line := range strings.Lines(all) {
			if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == ' ' || rest[0] == '{') {
				list = append(list, rest)
			}
		}
		return list
	}
	for _, total := range totals() {
		if total.legacy == "" {
			continue
		}
		legacy := valuesOf(total.legacy)
		if len(legacy) == 0 {
			t.Errorf("there is no %s", total.legacy)
		}
		if total.canonical != "" {
			if diff := cmp.Diff(valuesOf(total.canonical), legacy); diff != "" {
				t.Errorf("%s and %s: %s", total.canonical, total.legacy, diff)
			}
		}
	}
	if got := valuesOf("active_conntrack_count"); len(got) != 1 || got[0] != " 2\n" {
		t.Errorf("%q", got)
	}
	if got := valuesOf("lb_rule_count"); len(got) != 1 || got[0] != " 3\n" {
		t.Errorf("%q", got)
	}
}

func TestApplySucceeded(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, healthy{})
	if got := scrape(t, m); !strings.Contains(got, "loxilb_config_last_apply_success 1\n") {
		t.Error(got)
	}
}

// healthy has no object that failed.
type healthy struct{ fake }

func (healthy) Counts() map[string]map[status.State]int {
	return map[string]map[status.State]int{"service": {status.Applied: 3}}
}

func TestCompressed(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, fake{})
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	zip, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(zip)
	if err != nil || !strings.Contains(string(text), "loxilb_lb_rules 3\n") {
		t.Errorf("%v %s", err, text)
	}
}

func TestTooManyScrapes(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, fake{})
	for range scrapesAtOnce {
		m.scrapes <- struct{}{}
	}
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 503 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Names are free text, and a label must stay one.
func TestStrangeNames(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	st, err := desired.Open("", log)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = st.Commit("test", func(tx *store.Tx) error {
		return st.Services.Put(tx, lb.Service{
			Key:       lb.Key{VIP: netip.MustParseAddr("20.20.20.1"), Port: 80, Protocol: lb.TCP},
			Name:      `a"} 1`,
			Endpoints: []lb.Endpoint{{Addr: netip.MustParseAddr("31.31.31.1"), Port: 80, Weight: 1}},
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(st, fake{}, Build{}, log)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := scrape(t, m), `loxilb_service_connections_total{service="20.20.20.1:80/tcp",name="a\"} 1"} 7`; !strings.Contains(got, want) {
		t.Errorf("%s\nhas not %s", got, want)
	}
}

var update = flag.Bool("update", false, "write what is printed into testdata")

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
}
