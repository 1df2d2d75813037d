package metrics_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// deploy is the folder of the files that users load into Prometheus and Grafana.
const deploy = "../../../deploy"

// TestRules checks with promtool that the rules are valid, and that each alert fires with its fault
// and not without. Each alert describes the problem in a sentence, and links to a section in docs/
// with the remedy.
func TestRules(t *testing.T) {
	t.Parallel()
	rules, err := filepath.Glob(deploy + "/prometheus/*.rules.yml")
	if err != nil || len(rules) != 2 {
		t.Fatalf("got %v %v, want no error, 2 elements in rules", rules, err)
	}
	test := deploy + "/prometheus/alerts.test.yml"
	for _, args := range [][]string{append([]string{"check", "rules"}, rules...), {"test", "rules", test}} {
		if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v: %s", args, err, out)
		}
	}
	tests, err := os.ReadFile(test)
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range alerts(t) {
		if !strings.Contains(string(tests), `{labels: 'ALERTS{alertname="`+alert.Alert+`", alertstate="firing"`) {
			t.Errorf("alert %s fires in no test", alert.Alert)
		}
		address, section, _ := strings.Cut(alert.Annotations["runbook_url"], "#")
		page, full := strings.CutPrefix(address, "https://loxilb.invalid/")
		if !full {
			t.Errorf("%s: %q is no full URL", alert.Alert, address)
		}
		text, err := os.ReadFile(filepath.Join(deploy, "..", page))
		if err != nil {
			t.Errorf("%s: %v", alert.Alert, err)
		}
		if section != strings.ToLower(alert.Alert) || !strings.Contains(string(text), "\n## "+alert.Alert+"\n") {
			t.Errorf("%s has no section %s", alert.Alert, alert.Annotations["runbook_url"])
		}
		if alert.Annotations["summary"] == "" || alert.Labels["severity"] == "" {
			t.Errorf("%s has no summary, or no severity", alert.Alert)
		}
	}
}

// alert is a rule with an alert.
type alert struct {
	Alert, Expr         string
	Annotations, Labels map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	text, err := os.ReadFile(deploy + "/prometheus/alerts.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules []alert } }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) < 10 {
		t.Fatalf("got %+v, want one group of at least 10 rules", file)
	}
	return file.Groups[0].Rules
}
