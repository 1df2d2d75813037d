package manifests

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"loxilb/tools/markdown"
)

const chart = "../../deploy/helm/loxilb"

// versions returns the oldest and newest Kubernetes that the chart supports.
func versions() []string { return []string{"1.30.0", "1.37.0"} }

func needHelm(t *testing.T) {
	t.Helper()
	if os.Getenv("LOXILB_HELM") == "" {
		t.Skip("make test-manifests has helm, and runs it")
	}
	t.Parallel()
}

// render returns the manifests that helm renders from the chart.
func render(t *testing.T, version string, args ...string) (string, error) {
	t.Helper()
	return renderAs(t, "loxilb", version, args...)
}

// renderAs returns the manifests of a release.
func renderAs(t *testing.T, release, version string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Getenv("LOXILB_HELM"), append([]string{"template", release, chart, "--namespace=kube-system", "--kube-version=" + version}, args...)...)
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	return string(out), err
}

// TestSchemas checks that the manifests for each file of values satisfy Kubernetes' schemas, with
// unknown fields refused.
func TestSchemas(t *testing.T) {
	needHelm(t)
	dir := t.TempDir()
	writeSchemas(t, dir)
	list, err := filepath.Glob(chart + "/ci/*-values.yaml")
	if err != nil || len(list) < 4 {
		t.Fatalf("%d files of values, %v", len(list), err)
	}
	for _, values := range list {
		for _, version := range versions() {
			text, err := render(t, version, "--values="+values)
			if err != nil {
				t.Fatalf("%s: %v", values, err)
			}
			if err := validate(t, dir, text); err != nil {
				t.Errorf("%s for %s: %v", values, version, err)
			}
			outside := filepath.Base(values) == "outside-values.yaml"
			if there := strings.Contains(text, "kind: DaemonSet"); there == outside {
				t.Errorf("%s: the nodes run a daemon: %v, want %v", values, there, !outside)
			}
		}
	}
	text, err := render(t, versions()[0], "--values="+list[0])
	if err != nil {
		t.Fatal(err)
	}
	for what, wrong := range map[string]string{
		"an unknown field": strings.Replace(text, "hostNetwork:", "hostNetwrok:", 1), "a wrong type": strings.Replace(text, "minReadySeconds: ", "minReadySeconds: x", 1),
	} {
		if validate(t, dir, wrong) == nil {
			t.Errorf("%s is accepted", what)
		}
	}
}

func validate(t *testing.T, schemas, text string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Getenv("LOXILB_KUBECONFORM"), "-strict", "-summary", "-schema-location", schemas+"/{{.ResourceKind}}{{.KindSuffix}}.json")
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Errors: 0, Skipped: 0") {
		return errors.Join(err, errors.New(string(out)))
	}
	return nil
}

// writeSchemas writes JSON schemas of Kubernetes' objects that refuse unknown fields.
func writeSchemas(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(os.Getenv("LOXILB_KUBERNETES"))
	if err != nil {
		t.Fatal(err)
	}
	var openapi struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	if err := json.Unmarshal(text, &openapi); err != nil {
		t.Fatal(err)
	}
	for name, d := range openapi.Definitions {
		if d["properties"] != nil {
			d["additionalProperties"] = false
		}
		if strings.HasSuffix(name, ".IntOrString") || strings.HasSuffix(name, ".Quantity") {
			openapi.Definitions[name] = map[string]any{"type": []string{"string", "integer"}}
		}
	}
	for file, definition := range map[string]string{
		"daemonset-apps-v1": "io.k8s.api.apps.v1.DaemonSet", "service-v1": "io.k8s.api.core.v1.Service", "configmap-v1": "io.k8s.api.core.v1.ConfigMap",
		"deployment-apps-v1": "io.k8s.api.apps.v1.Deployment", "job-batch-v1": "io.k8s.api.batch.v1.Job", "pod-v1": "io.k8s.api.core.v1.Pod",
		"serviceaccount-v1":                         "io.k8s.api.core.v1.ServiceAccount",
		"poddisruptionbudget-policy-v1":             "io.k8s.api.policy.v1.PodDisruptionBudget",
		"role-rbac-v1":                              "io.k8s.api.rbac.v1.Role",
		"rolebinding-rbac-v1":                       "io.k8s.api.rbac.v1.RoleBinding",
		"clusterrole-rbac-v1":                       "io.k8s.api.rbac.v1.ClusterRole",
		"clusterrolebinding-rbac-v1":                "io.k8s.api.rbac.v1.ClusterRoleBinding",
		"customresourcedefinition-apiextensions-v1": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
	} {
		writeSchema(t, dir, file, map[string]any{"$ref": "#/definitions/" + definition, "definitions": openapi.Definitions})
	}
	writeOperatorSchemas(t, dir)
}

func writeSchema(t *testing.T, dir, name string, schema any) {
	t.Helper()
	text, err := json.Marshal(schema)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".json"), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestGenerated checks that the manifests in deploy/kubernetes equal those of the chart. UPDATE=1
// writes them.
func TestGenerated(t *testing.T) {
	needHelm(t)
	for _, access := range []string{"open", "token"} {
		text, err := render(t, versions()[0], "--values="+chart+"/ci/"+access+"-values.yaml")
		if err != nil {
			t.Fatal(err)
		}
		text = "# Made of deploy/helm/loxilb with api.access=" + access + ", by make test-manifests UPDATE=1. docs/kubernetes.md says how to use it.\n" +
			strings.ReplaceAll(text, "app.kubernetes.io/managed-by: Helm", "app.kubernetes.io/managed-by: kubectl")
		wantFile(t, "../../deploy/kubernetes/loxilb-"+access+".yaml", text)
	}
	text, err := render(t, versions()[0], "--values="+chart+"/ci/open-values.yaml", "--set=controller.enabled=true", "--show-only=templates/controller.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text = "# The controller of loxilb-open.yaml, made of deploy/helm/loxilb by make test-manifests UPDATE=1. docs/kubernetes-controller.md says how to use it.\n" +
		strings.ReplaceAll(text, "app.kubernetes.io/managed-by: Helm", "app.kubernetes.io/managed-by: kubectl")
	wantFile(t, "../../deploy/kubernetes/kube-loxilb.yaml", text)
}

// wantFile checks the text of a file, or writes it.
func wantFile(t *testing.T, path, text string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text, string(got)); diff != "" {
		t.Errorf("%s differs from the file generated from the chart (-): UPDATE=1 writes it: %s", path, diff)
	}
}

// TestDocumented checks that the chart accepts the values in docs/kubernetes.md.
func TestDocumented(t *testing.T) {
	needHelm(t)
	commands := regexp.MustCompile(`(?m)^helm (?:install|upgrade) .*$`).FindAllString(file(t, "docs/kubernetes.md"), -1)
	if len(commands) < 2 {
		t.Errorf("docs/kubernetes.md has only the commands %q", commands)
	}
	for _, command := range commands {
		args := []string{"--set=api.access=open"} // an upgrade inherits it from the installation
		for _, m := range regexp.MustCompile(`(--set(?:-string)?) (\S+)`).FindAllStringSubmatch(command, -1) {
			args = append(args, m[1]+"="+m[2])
		}
		if _, err := render(t, versions()[0], args...); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
}

// TestRefused checks that the chart refuses invalid values, and names them.
func TestRefused(t *testing.T) {
	needHelm(t)
	for args, want := range map[string]string{
		"":                                                    "/api/access",
		"api.access=everybody":                                "/api/access",
		"api.access=open,xpd=off":                             "'xpd' not allowed",
		"api.access=open,interfaces.only=eth0":                "'only' not allowed",
		"api.access=open,connections=many":                    "/connections",
		"api.access=open,updates.maxUnavailable=0":            "/updates/maxUnavailable",
		"api.access=open,image.digest=sha256:1":               "/image/digest",
		"api.access=open,api.port=65536":                      "/api/port",
		"api.access=open,stateDir=state":                      "/stateDir",
		"api.access=open,extraArgs=--metrics-detail=endpoint": "/extraArgs",
		"api.access=node,monitoring.serviceMonitor=true":      "monitoring.serviceMonitor needs api.access=open or api.access=token",
		"api.access=open,monitoring.runbooks=alerts.md":       "/monitoring/runbooks",
		"api.access=token,api.port=8091":                      "api.port and api.tlsPort must differ",
		"api.access=open,controller.mode=twoarm":              "/controller/mode",
		"api.access=open,controller.zone=llb-":                "/controller/zone",
		"api.access=open,controller.addresses={pool=1.1.1.1}": "/controller/addresses",
		"api.access=open,controller.nodeSelector.ssd=true":    "/controller/nodeSelector",

		"api.access=node,controller.enabled=true": "controller.enabled needs api.access=open, api.access=token or balancers",
		"api.access=open,controller.enabled=true,controller.loxiURL={http://192.0.2.1},monitoring.serviceMonitor=true": "which controller.loxiURL replaces",
		"api.access=open,controller.enabled=true,controller.roles=false,controller.instances=4":                        "controller.instances above 1 needs controller.roles=true",
	} {
		if _, err := render(t, versions()[0], "--set="+args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
	if _, err := render(t, "1.29.0", "--set=api.access=open"); err == nil || !strings.Contains(err.Error(), ">=1.30.0") {
		t.Errorf("Kubernetes 1.29: %v", err)
	}
}

// TestLongRelease checks that objects of a release with the longest name that helm allows have
// valid names. Jobs, Services and labels allow 63 characters: with more, the hooks of helm
// uninstall fail.
func TestLongRelease(t *testing.T) {
	needHelm(t)
	release := strings.Repeat("r", 53)
	text, err := renderAs(t, release, versions()[0], "--set=api.access=open,controller.enabled=true,monitoring.serviceMonitor=true")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^ *(?:name|app\.kubernetes\.io/name): (r\S+)$`).FindAllStringSubmatch(text, -1)
	if len(names) < 10 {
		t.Errorf("the names are %q", names)
	}
	for _, name := range names {
		if len(name[1]) > 63 && !strings.HasSuffix(name[1], "-uninstall-controller") { // names of rights may be longer
			t.Errorf("name %q has %d characters", name[1], len(name[1]))
		}
	}
}

// TestCompat checks that with compat the API accepts the existing loxilb's requests, but is not
// open to the network.
func TestCompat(t *testing.T) {
	needHelm(t)
	for _, access := range []string{"open", "token", "node"} {
		text, err := render(t, versions()[0], "--set=compat=true,api.access="+access)
		if err != nil {
			t.Fatal(err)
		}
		c := daemonSetOf(t, text).Spec.Template.Spec.Containers[0]
		if !daemonConfig(t, c, "192.0.2.7").Compat {
			t.Errorf("%s: not as the existing one", access)
		}
		wantAccess(t, c, access)
	}
}

// property is a value, or a group of values, of values.schema.json.
type property struct {
	Description          string
	Properties           map[string]*property
	AdditionalProperties any
}

// TestValues checks that each value has a description, that values.yaml has each value and no
// other, and that its comments are the descriptions. UPDATE=1 writes these.
func TestValues(t *testing.T) {
	t.Parallel()
	var schema property
	if err := json.Unmarshal([]byte(file(t, "deploy/helm/loxilb/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	var values yaml.Node
	if err := yaml.Unmarshal([]byte(file(t, "deploy/helm/loxilb/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	delete(schema.Properties, "global") // helm's own
	describe(t, "", &schema, values.Content[0])
	var text strings.Builder
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(&values); err != nil {
		t.Fatal(err)
	}
	wantFile(t, "../../deploy/helm/loxilb/values.yaml", text.String())
}

// describe puts descriptions of the schema in front of the values below a place.
func describe(t *testing.T, place string, p *property, values *yaml.Node) {
	t.Helper()
	if p.AdditionalProperties != false {
		t.Errorf("%s: any value is accepted", place)
	}
	missing := maps.Clone(p.Properties)
	for i := 0; i < len(values.Content); i += 2 {
		key, value := values.Content[i], values.Content[i+1]
		sub := p.Properties[key.Value]
		delete(missing, key.Value)
		switch {
		case sub == nil:
			t.Errorf("the schema does not have %s%s", place, key.Value)
		case value.Kind == yaml.MappingNode && sub.Properties != nil:
			describe(t, place+key.Value+".", sub, value)
		case !strings.HasSuffix(sub.Description, "."):
			t.Errorf("%s%s has no sentence: %q", place, key.Value, sub.Description)
		default:
			key.HeadComment = strings.TrimSuffix(markdown.Wrap("# "+sub.Description, "# "), "\n")
		}
	}
	for name := range missing {
		t.Errorf("values.yaml does not have %s%s", place, name)
	}
}
