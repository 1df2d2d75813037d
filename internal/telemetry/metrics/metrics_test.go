package metrics

import (
	"compress/gzip"
	"errors"
	"flag"
	"io"
	"log/slog"
	"math"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"loxilb/internal/contract"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

type fake struct{}

func (fake) Endpoints(yield func(*report.EndpointHealth) bool) {
	for i, state := range []report.HealthState{report.HealthUp, report.HealthDown, report.HealthUnknown} {
		e := &report.EndpointHealth{State: state, Changes: uint64(i), Failures: 2 * i, AvgDelay: time.Duration(2-i) * time.Millisecond, Since: time.Unix(1700000000+int64(i), 0)}
		e.Addr, e.Probe = netip.AddrFrom4([4]byte{31, 31, 31, byte(1 + i)}), lb.Probe{Type: lb.ProbeTCP, Port: 5001}
		e.Failed, e.Downtime = uint64(3*i), time.Duration(i)*1500*time.Millisecond
		e.Services = []lb.Key{{VIP: netip.MustParseAddr("20.20.20.1"), Port: 2020, Protocol: lb.TCP}}
		if i == 2 {
			e.Name = `a "b"`
		}
		if !yield(e) {
			return
		}
	}
}

// EndpointVerdict returns the verdict of the endpoint by the suffix of its address.
func (fake) EndpointVerdict(_ *lb.Service, e lb.Endpoint) (v report.Verdict) {
	v.Probe = report.HealthState(e.Addr.As4()[3] % 3)
	return v
}

func (f fake) EndpointCount() (count report.HealthCount) {
	for e := range f.Endpoints {
		count.Add(e)
	}
	return count
}

func (fake) AllStats(keys []lb.Key, yield func(int, *report.ServiceStats)) (all report.EndpointStats) {
	for i, k := range keys {
		if s := statsOf(k); k.Protocol != lb.UDP {
			yield(i, &s)
			all.Connections += s.Connections
			all.Handshakes.Add(&s.Handshakes)
		}
	}
	all.In, all.Out = report.Traffic{Packets: 60, Bytes: 6000}, report.Traffic{Packets: 40, Bytes: 4000}
	return all
}

func statsOf(k lb.Key) report.ServiceStats {
	if k.Port == 2022 {
		return report.ServiceStats{Endpoints: make([]report.EndpointStats, 1)}
	}
	shakes := report.Handshakes{Opened: 7, Answered: [report.HandshakeBuckets]uint64{3, 1, 10: 1}, Repeated: 4, Refused: 1, Reset: 2, Unreachable: 5}
	first := report.EndpointStats{
		Handshakes: shakes, Connections: 7, Active: 2, Inactive: 1, In: report.Traffic{Packets: 30, Bytes: 3000},
		Out: report.Traffic{Packets: 20, Bytes: 2000},
	}
	first.Available, first.Share = true, 0.3
	all := first
	all.Refusals[report.NoEndpoint], all.Refusals[report.ConntrackFull], all.Refusals[report.PortsExhausted] = 5, 6, 1
	first.Refusals[report.PortsExhausted] = 1
	return report.ServiceStats{EndpointStats: all, Endpoints: []report.EndpointStats{first, {}}}
}
func (fake) RuleCost() policy.RuleCost { return policy.RuleCost{Nodes: 5, Rules: 8} }

func (fake) RuleHits(r *policy.Rule) (report.Traffic, bool) {
	return report.Traffic{Packets: 3 + uint64(r.Preference), Bytes: 300}, r.Preference != 4
}
func (fake) DropBytes() map[string]uint64 {
	return map[string]uint64{"no-endpoint": 300, "bad-checksum": 0}
}
func (fake) Lifetimes() []report.Lifetimes {
	tcp := report.Lifetimes{Protocol: "tcp"}
	tcp.Life = report.Histogram{Sum: 3<<20 + 1<<18, Buckets: [report.HistogramBuckets]uint64{0: 1, 18: 1, 20: 1, 21: 1}}
	tcp.In = report.Histogram{Sum: 700, Buckets: [report.HistogramBuckets]uint64{6: 3, 9: 1}}
	tcp.Out = report.Histogram{Sum: 1 << 41, Buckets: [report.HistogramBuckets]uint64{0: 1, 41: 1}}
	return []report.Lifetimes{tcp, {Protocol: "udp"}}
}
func (fake) MapUses() []report.MapUse {
	return []report.MapUse{{Name: "connections", Entries: 4, Max: 524288, Bytes: 1 << 20}, {Name: "drops", Bytes: 4096}}
}
func (fake) Jiffy() time.Duration         { return 4 * time.Millisecond }
func (fake) NextHopsFull() uint64         { return 5 }
func (fake) GTPCounts() map[string]uint64 { return map[string]uint64{"taken": 8, "forged": 1} }
func (fake) FTPExpectations() report.FTPExpectations {
	return report.FTPExpectations{Expected: 3, Rows: 9, Max: 8192, Refused: map[string]uint64{"client": 4, "port": 1, "tls": 2}}
}
func (fake) IdleEnds() report.IdleEnds              { return report.IdleEnds{Reset: 6, Silent: 7} }
func (fake) XDP() ([]string, string, uint64)        { return []string{"eth0"}, "native", 12 }
func (fake) Drops() map[string]uint64               { return map[string]uint64{"no-endpoint": 5, "bad-checksum": 0} }
func (fake) Occupancy() (connections, limit uint64) { return 2, 262144 }
func (fake) Pressure() report.Pressure {
	return report.Pressure{HalfOpenTCP: 7, HalfOpenOthers: 2, HalfOpenMax: 65536, PortsShort: true, Challenged: 9, Answered: 3, KnownClients: 4}
}
func (fake) SourcePorts(least, most int) []report.SourcePorts {
	return []report.SourcePorts{{Source: netip.MustParseAddr("20.20.20.9"), Endpoint: netip.MustParseAddrPort("31.31.31.1:5001"), Protocol: lb.TCP, Used: least + most, Max: 35768}}
}
func (fake) Sweeps() Sweeps { return Sweeps{Visited: 100, Ended: 50, Last: 1500 * time.Microsecond} }
func (fake) Programs() []Program {
	return []Program{{Name: "loxilb_ether", Instructions: 1000, Runs: 20, Time: 3 * time.Microsecond}}
}
func (fake) LastApplied() time.Time { return time.Unix(1700000000, 0) }
func (fake) Counts() map[string]map[status.State]int {
	return map[string]map[status.State]int{"service": {status.Applied: 2, status.Failed: 1}}
}

func newMetrics(t *testing.T, src Source, o Options) *Metrics {
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
			"20.20.20.1:2021/tcp endpoints=31.31.31.1:5002,32.32.32.1:5002 name=web max-connections=100",
			"20.20.20.1:2022/tcp endpoints=31.31.31.1:5003",
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
		for _, line := range []string{"preference:0 drop", "sourceIP:10.0.0.0/8,portName:a\"b,preference:5 allow", "preference:4 drop"} {
			r, err := policy.ParseRule(line)
			if err != nil {
				return err
			}
			if err := st.Rules.Put(tx, r); err != nil {
				return err
			}
		}
		if err := st.Instances.Put(tx, lb.Instance{Name: "llb-inst1", Role: lb.RoleBackup, VIP: netip.MustParseAddr("20.20.20.9")}); err != nil {
			return err
		}
		return st.Drains.Put(tx, lb.Drain{Addr: netip.MustParseAddr("31.31.31.1"), Rate: 100, Deadline: time.Unix(1800000000, 0)})
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(st, src, o, log)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func scrapeAll(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("got %d %s, want code 200", w.Code, w.Body)
	}
	return "\n" + w.Body.String()
}

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	var ours strings.Builder
	for line := range strings.Lines(scrapeAll(t, m)) {
		if strings.Contains(line, "loxilb_") && !strings.Contains(line, "loxilb_system_") { // the load of the machine varies
			ours.WriteString(line)
		}
	}
	return ours.String()
}

// TestScrape compares the default output, and the complete one, with golden files, and checks that
// both are well-formed.
func TestScrape(t *testing.T) {
	t.Parallel()
	for path, o := range map[string]Options{"testdata/scrape.txt": {Build: full().Build}, "testdata/full.txt": full()} {
		m := newMetrics(t, fake{}, o)
		m.Observe("GET", 200)
		m.Observe("BREW", 403)
		got := scrape(t, m)
		golden(t, path, got)
		parser := expfmt.NewTextParser(model.UTF8Validation)
		if _, err := parser.TextToMetricFamilies(strings.NewReader(got)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		problems, err := promlint.New(strings.NewReader(got)).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: got %v %v, want no error, no problems", path, err, problems)
		}
	}
}

// TestCatalog checks that the catalog, from which loxilb-metrics(7) is generated, has exactly the
// exported metrics, in text and in protobuf.
func TestCatalog(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, fake{}, full())
	m.Observe("GET", 401)
	families, err := m.Gather()
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]*dto.MetricFamily{}
	for _, f := range families {
		if name := f.GetName(); !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			shown[name] = f
		}
	}
	text := scrapeAll(t, m)
	for _, one := range Catalog() {
		f := shown[one.Name]
		if f == nil {
			t.Errorf("%s is not shown", one.Name)
			continue
		}
		delete(shown, one.Name)
		if f.GetHelp() != one.Help || !strings.EqualFold(f.GetType().String(), string(one.Type)) || one.Help == "" {
			t.Errorf("%s is shown as a %s with the help %q, want %s with %q", one.Name, f.GetType(), f.GetHelp(), one.Type, one.Help)
		}
		var labels []string
		for _, series := range f.GetMetric() {
			for _, pair := range series.GetLabel() {
				if !slices.Contains(labels, pair.GetName()) {
					labels = append(labels, pair.GetName())
				}
			}
		}
		if slices.Sort(labels); !slices.Equal(labels, slices.Sorted(slices.Values(one.Labels))) {
			t.Errorf("%s has labels %v, not %v", one.Name, labels, one.Labels)
		}
		if inText := strings.Contains(text, "\n# TYPE "+one.Name+" "+string(one.Type)+"\n"); inText == (one.When == Native) {
			t.Errorf("%s is in the text format: %v", one.Name, inText)
		}
	}
	for name := range shown {
		t.Errorf("%s is not in the catalog", name)
	}
}

// TestNativeHistograms checks that a scrape by protobuf also has native histograms of handshake
// times, with the same counts as the classic ones.
func TestNativeHistograms(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, fake{}, Options{})
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,text/plain;version=0.0.4;q=0.3")
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	decoder := expfmt.NewDecoder(w.Body, expfmt.ResponseFormat(w.Result().Header))
	found := map[string]int{}
	for {
		var f dto.MetricFamily
		if err := decoder.Decode(&f); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(f.GetName(), "handshake_seconds") {
			continue
		}
		for _, series := range f.GetMetric() {
			h := series.GetHistogram()
			found[f.GetName()]++
			count, bucket := h.GetZeroCount(), int64(0)
			for _, delta := range h.GetPositiveDelta() {
				bucket += delta
				count += uint64(bucket)
			}
			if h.GetSchema() != 0 || count != h.GetSampleCount() || count%5 != 0 || int(h.GetPositiveSpan()[0].GetLength()) != len(h.GetPositiveDelta()) {
				t.Errorf("%s: got %v, want schema 0, whose buckets add up to the count", f.GetName(), h)
			}
			// a tick is 4 ms: less than one is below 2^-8 s, and one or more but less
			// than two is below 2^-7 s
			if h.GetZeroThreshold() != 1.0/256 || h.GetPositiveSpan()[0].GetOffset() != -7 || h.GetPositiveDelta()[0] != int64(h.GetZeroCount()/3) {
				t.Errorf("%s: got %v, want h.GetZeroThreshold() == 1.0/256, h.GetPositiveSpan()[0].GetOffset() == -7, "+
					"h.GetPositiveDelta()[0] == int64(h.GetZeroCount()/3)",
					f.GetName(), h)
			}
		}
	}
	if found["loxilb_handshake_seconds"] != 1 || found["loxilb_service_handshake_seconds"] != 2 {
		t.Errorf(`got %v, want found["loxilb_handshake_seconds"] == 1, found["loxilb_service_handshake_seconds"] == 2`,
			found)
	}
}

// TestLegacyNames checks that both names of a metric in the contract show the same
// values.
func TestLegacyNames(t *testing.T) {
	t.Parallel()
	all := scrapeAll(t, newMetrics(t, fake{}, full()))
	valuesOf := func(name string) (list []string) {
		for line := range strings.Lines(all) {
			if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == ' ' || rest[0] == '{') {
				list = append(list, rest)
			}
		}
		return list
	}
	for legacy, canonical := range map[string]string{
		"new_flow_count": "loxilb_new_flows", "total_requests": "loxilb_requests_total", "total_requests_per_service": "loxilb_service_requests_total",
		"total_errors": "loxilb_errors_total", "total_errors_per_service": "loxilb_service_errors_total", "healthy_host_count": "loxilb_healthy_endpoints",
		"unhealthy_host_count": "loxilb_unhealthy_endpoints", "total_fw_drops": "loxilb_fw_drop_packets_total", "processed_bytes": "loxilb_processed_bytes_total",
		"processed_packets": "loxilb_processed_packets_total", "active_flow_count_tcp": "loxilb_active_flow_count_tcp", "processed_tcp_bytes": "loxilb_processed_tcp_bytes_total",
		"processed_udp_bytes": "loxilb_processed_udp_bytes_total", "active_flow_count_sctp": "loxilb_active_flow_count_sctp",
		"active_conntrack_count": "loxilb_active_conntrack_entries", "lb_rule_count": "loxilb_lb_rules", "total_fw_drops_per_rule": "loxilb_fw_rule_drop_packets_total",
	} {
		got := valuesOf(legacy)
		if len(got) == 0 {
			t.Errorf("there is no %s", legacy)
		}
		if diff := cmp.Diff(valuesOf(canonical), got); diff != "" {
			t.Errorf("%s and its former name %s have different values:\n%s", canonical, legacy, diff)
		}
	}
	for name, want := range map[string]string{
		"total_load_dists_per_service":    `{service="20.20.20.1:2020/tcp",name="web"} 0.5` + "\n",
		"endpoint_load_dists_per_service": `{service="20.20.20.1:2020/tcp",name="web",dip="31.31.31.1:5001"} 1` + "\n",
	} {
		if got := valuesOf(name); !slices.Contains(got, want) {
			t.Errorf("%s: got %q, want %q in it", name, got, want)
		}
	}
	for _, metric := range contract.AllMetrics() { // every metric of the contract's table
		if got := strings.Contains(all, "# TYPE "+metric.Name+" "); got == (metric.State == contract.Unsupported) {
			t.Errorf("%s is %s, and shown: %v", metric.Name, metric.State, got)
		}
	}
	if got := valuesOf("active_conntrack_count"); len(got) != 1 || got[0] != " 2\n" {
		t.Errorf(`got %q, want 1 element, got[0] == " 2\n"`, got)
	}
	if got := valuesOf("lb_rule_count"); len(got) != 1 || got[0] != " 4\n" {
		t.Errorf(`got %q, want 1 element, got[0] == " 4\n"`, got)
	}
}

func TestApplySucceeded(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, healthy{}, Options{})
	if got := scrape(t, m); !strings.Contains(got, "loxilb_config_last_apply_success 1\n") {
		t.Errorf(`got %v, want "loxilb_config_last_apply_success 1\n" in got`, got)
	}
}

// healthy has no failed objects.
type healthy struct{ fake }

func (healthy) Counts() map[string]map[status.State]int {
	return map[string]map[status.State]int{"service": {status.Applied: 3}}
}

func TestCompressed(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, fake{}, Options{})
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	zip, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(zip)
	if err != nil || !strings.Contains(string(text), "loxilb_lb_rules 4\n") {
		t.Errorf(`got %v %s, want no error, "loxilb_lb_rules 4\n" in string(text)`, err, text)
	}
}

func TestTooManyScrapes(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, fake{}, Options{})
	for range scrapesAtOnce {
		m.scrapes <- struct{}{}
	}
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 503 {
		t.Errorf("got %d %s, want code 503", w.Code, w.Body)
	}
}

// TestStrangeNames checks that any name stays one label value.
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
	m, err := New(st, fake{}, Options{}, log)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := scrape(t, m), `loxilb_service_up{service="20.20.20.1:80/tcp",name="a\"} 1"} 1`; !strings.Contains(got, want) {
		t.Errorf("%s\nlacks %s", got, want)
	}
}

var update = flag.Bool("update", false, "write the output into testdata")

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
		t.Errorf("the result differs (-want +got):\n%s", diff)
	}
}

// TestScales checks that the native and the classic buckets of values counted in powers of two have
// the same counts below each bound, and that none is lost.
func TestScales(t *testing.T) {
	t.Parallel()
	h := &report.Histogram{Sum: 12345}
	for i := range h.Buckets {
		h.Buckets[i] = uint64(i*i%7 + 1)
	}
	for name, s := range map[string]scale{"life": lifeScale, "bytes": bytesScale} {
		m := histogramMessage(h, s, 1)
		below, bucket := map[float64]uint64{m.GetZeroThreshold(): m.GetZeroCount()}, int64(0)
		count := m.GetZeroCount()
		for i, delta := range m.GetPositiveDelta() {
			bucket += delta
			count += uint64(bucket)
			below[math.Exp2(float64(int(m.GetPositiveSpan()[0].GetOffset())+i))] = count // schema 0: bucket i ends at 2^i
		}
		if count != h.Count() || m.GetSampleCount() != count || m.GetSchema() != 0 {
			t.Errorf("%s: %d of %d are in native buckets", name, count, h.Count())
		}
		for _, b := range m.GetBucket() {
			if n, ok := below[b.GetUpperBound()]; !ok || n != b.GetCumulativeCount() {
				t.Errorf("%s: %d up to %v, %d in native buckets", name, b.GetCumulativeCount(), b.GetUpperBound(), n)
			}
		}
	}
	if first, last := lifeScale.bound(lifeScale.first), bytesScale.bound(bytesScale.last); first != 1.0/1024 || last != 1<<40 {
		t.Errorf("got %v %v, want first == 1.0/1024, last == 1<<40", first, last)
	}
}
