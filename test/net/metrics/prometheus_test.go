package metrics_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loxilb/internal/netnstest"
	"loxilb/internal/netnstest/labtest"
	"loxilb/test/net/rig"
)

// prometheus is a real one, beside the daemon that it scrapes.
type prometheus struct {
	r    *rig.Rig
	port int
}

// startPrometheus has one look at the daemon once a second, with the rules that are there for users.
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

// get asks the API of Prometheus.
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

// shows is nil if a query has data now.
func (p *prometheus) shows(query string) error {
	var data struct{ Result []json.RawMessage }
	if err := p.get("query", url.Values{"query": {query}}, &data); err != nil {
		return err
	}
	if len(data.Result) == 0 {
		return fmt.Errorf("no data: %s", query)
	}
	return nil
}

// dashboard is what is read of a file for Grafana.
type dashboard struct {
	Title, UID string
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob(deploy + "/grafana/*.json")
	if err != nil || len(files) != 4 {
		t.Fatal(files, err)
	}
	list := map[string]dashboard{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil || d.UID == "" {
			t.Fatalf("%s: %v", file, err)
		}
		list[filepath.Base(file)] = d
	}
	return list
}

// choices are what a user of the dashboards has chosen.
var choices = strings.NewReplacer("$__rate_interval", "5s", "$instance", "127.0.0.1:11111", "$service", "20.20.20.1:80/tcp", "$endpoint", "31.31.31.1:5001")

// queries are those of a dashboard's panels, and of what its users choose from.
func (d dashboard) queries() (list []string) {
	for _, v := range d.Templating.List {
		if of, ok := strings.CutPrefix(v.Definition, "label_values("); ok {
			of = strings.TrimSuffix(of, ")")
			at := strings.LastIndex(of, ", ")
			list = append(list, fmt.Sprintf("count by (%s) (%s)", of[at+2:], choices.Replace(of[:at])))
		}
	}
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			list = append(list, choices.Replace(target.Expr))
		}
	}
	return list
}

// TestPrometheus: a real Prometheus scrapes a real loxilb, and each query of each dashboard shows something; promtool has nothing to say about
// the metrics, no alert fires that should not, and native histograms arrive where Prometheus takes them.
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
	go func() { asked <- ask(client, r) }()
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
				if err := classic.shows(query); err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
				return nil
			})
		}
	}
	for _, family := range []string{"loxilb_handshake_seconds", "loxilb_service_handshake_seconds", "loxilb_endpoint_handshake_seconds"} {
		labtest.Eventually(t, 20*time.Second, func(context.Context) error {
			return native.shows("histogram_quantile(0.99, sum(rate(" + family + "[5s]))) >= 0")
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

// ask opens connections to the first service, ten a second, until ctx ends.
func ask(ctx context.Context, r *rig.Rig) error {
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
