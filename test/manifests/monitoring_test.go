package manifests

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// writeOperatorSchemas writes JSON schemas of the Prometheus operator's objects from its own
// definitions.
func writeOperatorSchemas(t *testing.T, dir string) {
	t.Helper()
	for file, plural := range map[string]string{
		"servicemonitor-monitoring-v1": "servicemonitors", "podmonitor-monitoring-v1": "podmonitors", "prometheusrule-monitoring-v1": "prometheusrules",
	} {
		text, err := os.ReadFile(filepath.Join(os.Getenv("LOXILB_CRDS"), "monitoring.coreos.com_"+plural+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var definition struct {
			Spec struct {
				Versions []struct {
					Name   string
					Schema struct {
						OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
					}
				}
			}
		}
		if err := yaml.Unmarshal(text, &definition); err != nil || len(definition.Spec.Versions) != 1 {
			t.Fatalf("%s: %v, %d versions", file, err, len(definition.Spec.Versions))
		}
		schema := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
		closed(schema)
		writeSchema(t, dir, file, schema)
	}
}

// closed makes a schema refuse unknown fields, which the operator would drop silently.
func closed(schema map[string]any) {
	if schema["x-kubernetes-int-or-string"] == true {
		clear(schema)
		schema["type"] = []string{"string", "integer"}
		return
	}
	properties, _ := schema["properties"].(map[string]any)
	if properties != nil {
		schema["additionalProperties"] = false
	}
	for _, sub := range properties {
		if sub, ok := sub.(map[string]any); ok {
			closed(sub)
		}
	}
	for _, of := range []string{"items", "additionalProperties"} {
		if sub, ok := schema[of].(map[string]any); ok {
			closed(sub)
		}
	}
}

// TestMonitoringCopies checks that the chart has the rules of deploy/prometheus and the dashboards
// of deploy/grafana. UPDATE=1 copies them.
func TestMonitoringCopies(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"alerts.rules.yml", "recording.rules.yml"} {
		wantFile(t, filepath.Join(chart, "files", name), file(t, "deploy/prometheus/"+name))
	}
	for _, name := range dashboards() {
		wantFile(t, filepath.Join(chart, "files/dashboards", name), file(t, "deploy/grafana/"+name))
	}
}

// dashboards are the files of deploy/grafana.
func dashboards() []string {
	return []string{"datapath.json", "endpoint.json", "overview.json", "service.json"}
}

// TestDashboardMetrics checks that loxilb-metrics(7) or a recording rule has each metric of the
// dashboards.
func TestDashboardMetrics(t *testing.T) {
	t.Parallel()
	known := strings.NewReplacer(`\fB`, "", `\fR`, "", `\`, "").Replace(file(t, "docs/man/loxilb-metrics.7")) + file(t, "deploy/prometheus/recording.rules.yml")
	suffix := regexp.MustCompile("_(bucket|sum|count)$")
	for _, name := range dashboards() {
		used := regexp.MustCompile(`\bloxilb[_:][a-z0-9_:]+`).FindAllString(file(t, "deploy/grafana/"+name), -1)
		if len(used) < 5 {
			t.Errorf("%s has only the metrics %v", name, used)
		}
		for _, metric := range used {
			if !regexp.MustCompile(`\b` + suffix.ReplaceAllString(metric, "") + `\b`).MatchString(known) {
				t.Errorf("%s: no metric %s is documented", name, metric)
			}
		}
	}
}

// monitor holds the checked fields of a ServiceMonitor or PrometheusRule.
type monitor struct {
	Kind     string
	Metadata struct{ Labels map[string]string }
	Data     map[string]string
	Spec     struct {
		Selector  struct{ MatchLabels map[string]string }
		Endpoints []struct {
			Port, Path, Interval, Scheme string
			Authorization                struct{ Credentials struct{ Name, Key string } }
			TLSConfig                    struct {
				CA         struct{ Secret struct{ Name, Key string } }
				ServerName string
			} `json:"tlsConfig"`
		}
		PodMetricsEndpoints []struct{ Port, Interval string } `json:"podMetricsEndpoints"`
		Template            struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Containers []struct{ Ports []struct{ Name string } }
			}
		}
		Groups []any
		Ports  []struct {
			Name string
			Port int
		}
	}
}

// TestMonitoring checks that Prometheus finds the API of each node by the Service, has the token
// that it needs, and loads the rules of deploy/prometheus with the configured address of the
// documents. By default none of this is created.
func TestMonitoring(t *testing.T) {
	needHelm(t)
	text, err := render(t, versions()[0], "--values="+chart+"/ci/monitoring-values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]monitor{}
	for document := range strings.SplitSeq(text, "\n---\n") {
		var m monitor
		if err := yaml.Unmarshal([]byte(document), &m); err != nil {
			t.Fatal(err)
		}
		found[m.Kind] = append(found[m.Kind], m)
	}
	isOther := func(s monitor) bool { return s.Metadata.Labels["app.kubernetes.io/component"] != "metrics" }
	found["Service"] = slices.DeleteFunc(found["Service"], isOther) // the controller's
	if len(found["Service"]) != 1 || len(found["ServiceMonitor"]) != 1 || len(found["PrometheusRule"]) != 2 {
		t.Fatalf("%d Services, %d ServiceMonitors, %d PrometheusRules", len(found["Service"]), len(found["ServiceMonitor"]), len(found["PrometheusRule"]))
	}
	service, scrape := found["Service"][0], found["ServiceMonitor"][0]
	for key, value := range scrape.Spec.Selector.MatchLabels {
		if service.Metadata.Labels[key] != value {
			t.Errorf("the Service lacks the label %s=%s", key, value)
		}
	}
	e := scrape.Spec.Endpoints[0]
	if e.TLSConfig.ServerName != "lb.example.org" {
		t.Errorf("Prometheus expects certificates of %q", e.TLSConfig.ServerName)
	}
	wantPodMonitor(t, found)
	if e.Port != service.Spec.Ports[0].Name || service.Spec.Ports[0].Port != 8091 || e.Scheme != "https" || e.Path != "/metrics" || e.Interval != "30s" {
		t.Errorf("Prometheus scrapes %+v of %+v", e, service.Spec.Ports)
	}
	if e.Authorization.Credentials.Key != "token" || e.TLSConfig.CA.Secret.Name != e.Authorization.Credentials.Name {
		t.Errorf("Prometheus has no access: %+v", e)
	}
	wantRules(t, found["PrometheusRule"])
	wantDashboards(t, found["ConfigMap"])
	plain, err := render(t, versions()[0], "--set=api.access=open")
	if err != nil || strings.Contains(plain, "monitoring.coreos.com") || strings.Contains(plain, "-metrics") || strings.Contains(plain, "grafana") {
		t.Errorf("monitoring is enabled by default (%v)", err)
	}
}

// wantPodMonitor checks that Prometheus finds the metrics of the controller.
func wantPodMonitor(t *testing.T, found map[string][]monitor) {
	t.Helper()
	if len(found["PodMonitor"]) != 1 || len(found["Deployment"]) != 1 {
		t.Fatalf("%d PodMonitors, %d Deployments", len(found["PodMonitor"]), len(found["Deployment"]))
	}
	scrape, controller := found["PodMonitor"][0].Spec, found["Deployment"][0].Spec.Template
	for key, value := range scrape.Selector.MatchLabels {
		if controller.Metadata.Labels[key] != value {
			t.Errorf("the controller's pods lack the label %s=%s", key, value)
		}
	}
	port := controller.Spec.Containers[0].Ports[0].Name
	if e := scrape.PodMetricsEndpoints; len(e) != 1 || e[0].Port != port || e[0].Interval != "30s" {
		t.Errorf("Prometheus scrapes %+v of the controller's port %q", e, port)
	}
}

// wantDashboards checks that a ConfigMap has the dashboards, and the label by which Grafana's
// sidecar finds it.
func wantDashboards(t *testing.T, maps []monitor) {
	t.Helper()
	if len(maps) != 1 || maps[0].Metadata.Labels["grafana_dashboard"] != "1" || len(maps[0].Data) != len(dashboards()) {
		t.Fatalf("ConfigMaps of dashboards: %+v", maps)
	}
	for _, name := range dashboards() {
		if strings.TrimSpace(maps[0].Data[name]) != strings.TrimSpace(file(t, "deploy/grafana/"+name)) {
			t.Errorf("dashboard %s differs", name)
		}
	}
}

// wantRules checks that these are the rules of deploy/prometheus.
func wantRules(t *testing.T, rules []monitor) {
	t.Helper()
	var have, want []any
	for _, r := range rules {
		have = append(have, r.Spec.Groups...)
	}
	for _, name := range []string{"recording.rules.yml", "alerts.rules.yml"} {
		var groups struct{ Groups []any }
		text := strings.ReplaceAll(file(t, "deploy/prometheus/"+name), "https://loxilb.invalid/docs/", "https://wiki.example.org/loxilb/")
		if err := yaml.Unmarshal([]byte(text), &groups); err != nil {
			t.Fatal(err)
		}
		want = append(want, groups.Groups...)
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("the rules differ (-want +got):\n%s", diff)
	}
	if rules[0].Metadata.Labels["release"] != "prometheus" {
		t.Errorf("labels are %v", rules[0].Metadata.Labels)
	}
}
