package manifests

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"loxilb/internal/config"
	"loxilb/test/certtest"
)

// daemonSet holds the checked fields of a DaemonSet.
type daemonSet struct {
	Kind string
	Spec struct {
		MinReadySeconds int
		UpdateStrategy  struct {
			Type          string
			RollingUpdate struct{ MaxUnavailable, MaxSurge any }
		}
		Template struct {
			Spec struct {
				HostNetwork, HostPID         bool
				PriorityClassName            string
				AutomountServiceAccountToken *bool
				Containers                   []container
			}
		}
	}
}

type container struct {
	Args            []string
	Env             []struct{ Name, Value string }
	ReadinessProbe  probe
	LivenessProbe   probe
	Resources       struct{ Requests map[string]string }
	SecurityContext struct {
		Privileged, AllowPrivilegeEscalation, ReadOnlyRootFilesystem *bool
		Capabilities                                                 struct{ Drop, Add []string }
	}
}

type probe struct {
	HTTPGet struct {
		Path, Host string
		Port       int
	}
}

// plain returns the manifests that need no helm, by file name.
func plain(t *testing.T) map[string]string {
	t.Helper()
	list, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	if err != nil || len(list) == 0 {
		t.Fatalf("%d files, %v", len(list), err)
	}
	texts := map[string]string{}
	for _, path := range list {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(path)] = string(text)
	}
	return texts
}

// daemonSetOf returns the DaemonSet among the documents of a text.
func daemonSetOf(t *testing.T, text string) (d daemonSet) {
	t.Helper()
	for document := range strings.SplitSeq(text, "\n---\n") {
		if err := yaml.Unmarshal([]byte(document), &d); err != nil {
			t.Fatal(err)
		}
		if d.Kind == "DaemonSet" && len(d.Spec.Template.Spec.Containers) == 1 {
			return d
		}
	}
	t.Fatal("there is no DaemonSet with one container")
	return d
}

// TestPlain compares the manifests with the daemon's flags, and with what the container needs.
func TestPlain(t *testing.T) {
	t.Parallel()
	for name, text := range plain(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "kube-loxilb.yaml" {
				wantUnprivileged(t, text)
				return
			}
			d := daemonSetOf(t, text)
			wantRollout(t, d)
			c := d.Spec.Template.Spec.Containers[0]
			wantRights(t, c)
			access, _ := strings.CutPrefix(strings.TrimSuffix(name, ".yaml"), "loxilb-")
			wantAccess(t, c, access)
		})
	}
}

// wantUnprivileged checks that the controller has no rights on its node, and only the rights in the
// cluster that docs/kubernetes-controller.md lists.
func wantUnprivileged(t *testing.T, text string) {
	t.Helper()
	for _, line := range []string{"runAsNonRoot: true", "readOnlyRootFilesystem: true", "drop: [ALL]", "allowPrivilegeEscalation: false"} {
		if !strings.Contains(text, line) {
			t.Errorf("the controller lacks %q", line)
		}
	}
	for _, word := range []string{"hostNetwork", "hostPath", `"*"`, "secrets]", "add:", "resources: [pods], verbs: [get"} {
		if strings.Contains(text, word) {
			t.Errorf("the controller has %q", word)
		}
	}
}

// wantRollout checks that nodes are updated one after the other, each after the previous one is
// ready, and that other pods are evicted first.
func wantRollout(t *testing.T, d daemonSet) {
	t.Helper()
	pod, update := d.Spec.Template.Spec, d.Spec.UpdateStrategy
	if update.Type != "RollingUpdate" || update.RollingUpdate.MaxUnavailable != 1.0 || update.RollingUpdate.MaxSurge != 0.0 || d.Spec.MinReadySeconds < 10 {
		t.Errorf("the DaemonSet is replaced by %+v, and waits for %d s", update, d.Spec.MinReadySeconds)
	}
	if !pod.HostNetwork || pod.HostPID || pod.PriorityClassName != "system-node-critical" || *pod.AutomountServiceAccountToken {
		t.Errorf("got %+v, want pod.HostNetwork, not pod.HostPID, "+
			`pod.PriorityClassName == "system-node-critical", not *pod.AutomountServiceAccountToken`,
			pod)
	}
	c := pod.Containers[0]
	if c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.LivenessProbe.HTTPGet.Path != "/healthz" || c.Resources.Requests["memory"] == "" {
		t.Errorf(`got %+v, want c.ReadinessProbe.HTTPGet.Path == "/readyz", `+
			`c.LivenessProbe.HTTPGet.Path == "/healthz", c.Resources.Requests["memory"] not empty`,
			c)
	}
}

// wantRights checks that the capabilities are those of docs/container.md, and equal the unit's,
// except for the socket's group and capabilities that others include.
func wantRights(t *testing.T, c container) {
	t.Helper()
	s := c.SecurityContext
	if *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []string{"ALL"}) {
		t.Errorf("got %+v, want not *s.Privileged, not *s.AllowPrivilegeEscalation, "+
			`*s.ReadOnlyRootFilesystem, s.Capabilities.Drop == []string{"ALL"}`,
			s)
	}
	document := regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\|").FindAllStringSubmatch(file(t, "docs/container.md"), -1)
	unit := regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.*)$`).FindStringSubmatch(file(t, "deploy/package/loxilb.service"))
	var documented, ofUnit []string
	for _, m := range document {
		documented = append(documented, m[1])
	}
	for name := range strings.FieldsSeq(unit[1]) {
		if name = strings.TrimPrefix(name, "CAP_"); !slices.Contains([]string{"BPF", "PERFMON", "CHOWN"}, name) {
			ofUnit = append(ofUnit, name)
		}
	}
	slices.Sort(documented)
	slices.Sort(ofUnit)
	if diff := cmp.Diff(documented, s.Capabilities.Add); diff != "" {
		t.Errorf("capabilities of docs/container.md (-) and of the manifest (+): %s", diff)
	}
	if diff := cmp.Diff(ofUnit, s.Capabilities.Add); diff != "" {
		t.Errorf("capabilities of the unit (-) and of the manifest (+): %s", diff)
	}
}

func file(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// wantAccess checks that the daemon accepts its flags, that the selected users can use the API, and
// that probes use an address at which it answers.
func wantAccess(t *testing.T, c container, access string) {
	t.Helper()
	const node = "192.0.2.7"
	got := daemonConfig(t, c, node)
	asked := "127.0.0.1"
	switch access {
	case "open":
		asked = node
		if got.API.Plain.Addr().String() != node || !got.API.Insecure || got.API.TLS.IsValid() {
			t.Errorf("got %+v, want got.API.Plain.Addr() == node, got.API.Insecure, not got.API.TLS.IsValid()",
				got.API)
		}
	case "token":
		if !got.API.TLS.IsValid() || got.API.Token == "" || got.API.Insecure || got.API.Plain.Addr().String() != asked {
			t.Errorf("got %+v, want got.API.TLS.IsValid(), got.API.Token not empty, "+
				"not got.API.Insecure, got.API.Plain.Addr() == asked",
				got.API)
		}
	case "node":
		if got.API.TLS.IsValid() || got.API.Insecure || got.API.Plain.Addr().String() != asked {
			t.Errorf("got %+v, want not got.API.TLS.IsValid(), not got.API.Insecure, got.API.Plain.Addr() == asked",
				got.API)
		}
	default:
		t.Errorf("unknown access %q", access)
	}
	for _, p := range []probe{c.ReadinessProbe, c.LivenessProbe} {
		host := p.HTTPGet.Host
		if host == "" {
			host = node // the pod has the node's address
		}
		if host != asked || p.HTTPGet.Port != int(got.API.Plain.Port()) {
			t.Errorf("the probe uses %s:%d, and the API answers at %s", host, p.HTTPGet.Port, got.API.Plain)
		}
	}
}

// daemonConfig returns the daemon's configuration for the container's flags and environment on that
// node.
func daemonConfig(t *testing.T, c container, node string) (got *config.Config) {
	t.Helper()
	secret := t.TempDir()
	pair := certtest.SelfSigned(t, time.Now().Add(time.Hour), "loxilb")
	for name, text := range map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key, "token": []byte("secret")} {
		if err := os.WriteFile(filepath.Join(secret, name), text, 0o400); err != nil {
			t.Fatal(err)
		}
	}
	var args []string
	for _, arg := range c.Args {
		arg = strings.ReplaceAll(arg, "$(NODE_IP)", node)
		args = append(args, strings.ReplaceAll(arg, "=/etc/loxilb/api/", "="+secret+"/"))
	}
	lookup := func(name string) (string, bool) {
		for _, e := range c.Env {
			if e.Name == name {
				return e.Value, true
			}
		}
		return "", false
	}
	cmd := config.Command(nil, lookup, func(_ context.Context, c *config.Config) error { got = c; return nil })
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	if len(got.Notes) > 0 {
		t.Errorf("without effect: %q", got.Notes)
	}
	return got
}
