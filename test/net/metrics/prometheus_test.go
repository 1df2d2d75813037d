package metrics_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"loxilb/internal/telemetry/metrics"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// prometheus is a real Prometheus that scrapes the daemon.
type prometheus struct {
	r    *rig.Rig
	port int
}

// startPrometheus starts a Prometheus that scrapes the daemon once a second, with the rules of the
// repository.
func startPrometheus(t *testing.T, r *rig.Rig, port int, more ...string) *prometheus {
	t.Helper()
	rules, err := filepath.Abs(deploy + "/prometheus")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	text := fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%s/*.rules.yml]
scrape_configs:
  - job_name: loxilb
    static_configs: [{targets: ["127.0.0.1:11111"]}]
`, rules)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = r.LB.Start(netnstest.Command{Args: append([]string{
		"prometheus", "--config.file=" + config, "--storage.tsdb.path=" + t.TempDir(), "--log.level=warn", fmt.Sprintf("--web.listen-address=127.0.0.1:%d", port),
	}, more...)})
	if err != nil {
		t.Fatal(err)
	}
	return &prometheus{r, port}
}

// get makes a request to the API of Prometheus.
func (p *prometheus) get(path string, query url.Values, answer any) error {
	resp, err := p.r.LB.HTTPClient(rig.Patience).Get(fmt.Sprintf("http://127.0.0.1:%d/api/v1/%s?%s", p.port, path, query.Encode()))
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // of a test
	var all struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil || all.Status != "success" {
		return fmt.Errorf("%s: %s, %w", path, all.Error, err)
	}
	return json.Unmarshal(all.Data, answer)
}

// checkData returns an error unless a query has data now.
func (p *prometheus) checkData(query string) error {
	var data struct{ Result []json.RawMessage }
	if err := p.get("query", url.Values{"query": {query}}, &data); err != nil {
		return err
	}
	if len(data.Result) == 0 {
		return fmt.Errorf("no data: %s", query)
	}
	return nil
}

// dashboard is the part of a Grafana dashboard that tests use.
type dashboard struct {
	Title, UID, Description string
	Templating              struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []struct {
		Title, Description string
		Targets            []struct{ Expr string }
	}
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob(deploy + "/grafana/*.json")
	if err != nil || len(files) != 4 {
		t.Fatalf("got %v %v, want no error, 4 elements in files", files, err)
	}
	list := map[string]dashboard{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil || d.UID == "" {
			t.Fatalf("%s: got %v, want no error, d.UID not empty", file, err)
		}
		list[filepath.Base(file)] = d
	}
	return list
}

// variableValues replaces the variables of the dashboards by values.
var variableValues = strings.NewReplacer("$__rate_interval", "5s", "$instance", "127.0.0.1:11111", "$service", "20.20.20.1:80/tcp", "$endpoint", "31.31.31.1:5001")

// queries returns the queries of a dashboard's panels and variables.
func (d dashboard) queries() (list []string) {
	for _, v := range d.Templating.List {
		if of, ok := strings.CutPrefix(v.Definition, "label_values("); ok {
			of = strings.TrimSuffix(of, ")")
			at := strings.LastIndex(of, ", ")
			list = append(list, fmt.Sprintf("count by (%s) (%s)", of[at+2:], variableValues.Replace(of[:at])))
		}
	}
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			list = append(list, variableValues.Replace(target.Expr))
		}
	}
	return list
}

// TestPrometheus checks with a real Prometheus that each query of each dashboard has data, that
// promtool accepts the metrics, that no alert fires, and that native histograms arrive if this
// Prometheus supports them.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeNames()
	r.Loxicmd("create lb 20.20.20.1 --tcp=80:5001 --endpoints=%s --monitor --probe-interval=200ms --name=web", rig.Endpoints4())
	r.Loxicmd("create lb 20.20.20.1 --tcp=81:5001 --endpoints=32.32.32.1:1,17.17.17.1:0")
	r.Loxicmd("drain endpoint 17.17.17.1:5001 --deadline=1h")
	classic, native := startPrometheus(t, r, 9090), startPrometheus(t, r, 9091, "--enable-feature=native-histograms")
	client, stop := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() { asked <- openConnections(client, r) }()
	defer func() {
		stop()
		if err := <-asked; err != nil {
			t.Error(err)
		}
	}()

	page, err := r.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	lint := exec.Command("promtool", "check", "metrics")
	lint.Stdin = strings.NewReader(page)
	if out, err := lint.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v: %s", err, out)
	}
	for file, d := range dashboards(t) {
		for _, query := range d.queries() {
			labtest.Eventually(t, 20*time.Second, func(context.Context) error {
				if err := classic.checkData(query); err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
				return nil
			})
		}
	}
	for _, family := range []string{"loxilb_handshake_seconds", "loxilb_service_handshake_seconds", "loxilb_endpoint_handshake_seconds"} {
		labtest.Eventually(t, 20*time.Second, func(context.Context) error {
			return native.checkData("histogram_quantile(0.99, sum(rate(" + family + "[5s]))) >= 0")
		})
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Type, Health, LastError, State string }
		}
	}
	if err := classic.get("rules", nil, &rules); err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Groups {
		for _, rule := range g.Rules {
			if rule.Health != "ok" || rule.Type == "alerting" && rule.State != "inactive" {
				t.Errorf("%s is %s: %s %s", rule.Name, rule.State, rule.Health, rule.LastError)
			}
		}
	}
}

// TestDashboardsByDefault checks that with the default detail of metrics each query of each
// dashboard has data, except for the dashboard whose description says that it needs more.
func TestDashboardsByDefault(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Args: []string{"--metrics-detail=service"}})
	r.ServeNames()
	r.Loxicmd("create lb 20.20.20.1 --tcp=80:5001 --endpoints=%s --monitor --probe-interval=200ms --name=web", rig.Endpoints4())
	r.Loxicmd("create lb 20.20.20.1 --tcp=81:5001 --endpoints=32.32.32.1:1,17.17.17.1:0 --max-connections=100")
	r.Loxicmd("create lb 20.20.20.1 --tcp=82:5002 --endpoints=32.32.32.1:1 --monitor --probe-interval=200ms")
	r.Loxicmd("drain endpoint 17.17.17.1:5001 --deadline=1h")
	r.Loxicmd("set hastate MASTER")
	p := startPrometheus(t, r, 9092)
	client, stop := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() { asked <- openConnections(client, r) }()
	defer func() {
		stop()
		if err := <-asked; err != nil {
			t.Error(err)
		}
	}()
	for file, d := range dashboards(t) {
		if needsEndpoints(d.Description) {
			continue
		}
		for _, query := range d.queries() {
			labtest.Eventually(t, 30*time.Second, func(context.Context) error {
				if err := p.checkData(query); err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
				return nil
			})
		}
	}
	for _, query := range []string{
		`loxilb_vip_owner{vip="20.20.20.1"} == 1`, `loxilb_instance_role{name="llb-inst0",role="MASTER"} == 1`, `loxilb_connections_peak > 0`,
		`loxilb_service_connections_limit{service="20.20.20.1:81/tcp"} == 100`, `loxilb_service_connections_peak{service="20.20.20.1:81/tcp"} == 0`,
		`loxilb_service_failed_probes_total{service="20.20.20.1:82/tcp"} > 2`, `loxilb_service_endpoint_downtime_seconds_total{service="20.20.20.1:82/tcp"} > 1`,
	} {
		labtest.Eventually(t, 30*time.Second, func(context.Context) error { return p.checkData(query) })
	}
	if p.checkData(`loxilb_service_failed_probes_total{service="20.20.20.1:80/tcp"}`) == nil {
		t.Error("probes of a service whose endpoints are all up have failed")
	}
}

// needsEndpoints reports whether a description says that the dashboard needs series of endpoints.
func needsEndpoints(description string) bool {
	return strings.Contains(description, "Needs --metrics-detail=endpoint")
}

// TestDetailOfQueries checks that queries of dashboards and rules use existing series. If a series
// exists only with --metrics-detail=endpoint, the description must say so, or the query must have
// an alternative.
func TestDetailOfQueries(t *testing.T) {
	t.Parallel()
	known := map[string]metrics.When{}
	for _, m := range metrics.Catalog() {
		known[m.Name] = m.When
		if m.Type == metrics.Histogram {
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				known[m.Name+part] = m.When
			}
		}
	}
	check := func(what, query string, allowed bool) {
		t.Helper()
		for _, m := range regexp.MustCompile(`(?:^|[^:\w])(loxilb_\w+)`).FindAllStringSubmatch(query, -1) {
			when, is := known[m[1]]
			switch {
			case !is, when == metrics.Contract, when == metrics.Former:
				t.Errorf("%s: there is no %s", what, m[1])
			case when == metrics.OfEndpoint && !allowed:
				t.Errorf("%s: %s needs --metrics-detail=endpoint", what, m[1])
			}
		}
	}
	for file, d := range dashboards(t) {
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				may := needsEndpoints(d.Description) || strings.Contains(panel.Description, "unless loxilb has --metrics-detail=endpoint") && strings.Contains(target.Expr, " or ")
				check(file+": "+panel.Title, target.Expr, may)
			}
		}
		for _, v := range d.Templating.List {
			check(file+": "+v.Name, v.Definition, needsEndpoints(d.Description))
		}
	}
	for _, one := range alerts(t) {
		check(one.Alert, one.Expr, needsEndpoints(one.Annotations["description"]))
	}
}

// openConnections opens connections to the first service, ten a second, until ctx ends.
func openConnections(ctx context.Context, r *rig.Rig) error {
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	for {
		if _, err := r.Client.Get(ctx, "20.20.20.1:80"); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-pace.C:
		}
	}
}
