package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

const oneYAML = `serviceArguments:
  externalIP: 20.20.20.1
  port: 2020
  protocol: tcp
endpoints:
- {endpointIP: 31.31.31.1, targetPort: 5001, weight: 1}
`

const oneJSON = `{"endpoints":[{"endpointIP":"31.31.31.1","targetPort":5001,"weight":1}],"serviceArguments":{"externalIP":"20.20.20.1","port":2020,"protocol":"tcp"}}`

func TestApply(t *testing.T) {
	t.Parallel()
	kind := "apiVersion: netlox/v1\nkind: Loadbalancer\nmetadata:\n  name: test\nspec:\n  " + strings.ReplaceAll(oneYAML, "\n", "\n  ") + "\n"
	path := filepath.Join(t.TempDir(), "f")
	for name, tc := range map[string]struct{ file, want string }{
		"one service":       {oneYAML, oneJSON},
		"JSON":              {oneJSON, oneJSON},
		"list":              {`{"lbAttr":[` + oneJSON + `,` + oneJSON + `]}`, oneJSON + `,` + oneJSON},
		"kind":              {kind, oneJSON},
		"several documents": {"---\n" + kind + "---\n# nothing\n---\n" + oneYAML + "---\n", oneJSON + `,` + oneJSON},
		"left to server":    {`{"color":1}`, `{"color":1}`},
	} {
		s := newServer(t, 200, success)
		got := run(t, tc.file, s.at("apply -f -")...)
		if got != (result{ExitOK, "success\n", ""}) || len(s.requests) != 1 {
			t.Errorf("%s: %+v %q", name, got, s.requests)
			continue
		}
		want := `POST /netlox/v1/config/loadbalancer {"lbAttr":[` + tc.want + `]}`
		if diff := cmp.Diff(want, s.requests[0]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if err := os.WriteFile(path, []byte(tc.file), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range []string{"create -f ", "apply --lb "} {
			if got := run(t, "", s.at(args+path)...); got.code != ExitOK {
				t.Errorf("%s: %s: %+v", name, args, got)
			}
		}
		if len(s.requests) != 3 || s.requests[1] != s.requests[0] || s.requests[2] != s.requests[0] {
			t.Errorf("%s: %q", name, s.requests)
		}
	}
}

// TestApplyEndpoints: endpoints of documents and lists follow the services, but for those that services have probed.
func TestApplyEndpoints(t *testing.T) {
	t.Parallel()
	const endpoint = `{"hostName":"10.0.0.1","probeType":"ping"}`
	kind := "apiVersion: netlox/v1\nkind: Endpoint\nspec: " + endpoint + "\n"
	list := `{"Attr":[{"hostName":"10.0.0.2","object":true,"services":["20.20.20.1:80/tcp"]},{"hostName":"10.0.0.3","services":["20.20.20.1:80/tcp"]},{"hostName":"10.0.0.4"}]}`
	s := newServer(t, 200, success)
	if got := run(t, kind+"---\n"+oneYAML+"---\n"+list, s.at("apply -f -")...); got != (result{ExitOK, "success\n", ""}) {
		t.Errorf("%+v", got)
	}
	const post = "POST /netlox/v1/config/"
	want := []string{
		post + `loadbalancer {"lbAttr":[` + oneJSON + `]}`, post + "endpoint " + endpoint,
		post + `endpoint {"hostName":"10.0.0.2","object":true,"services":["20.20.20.1:80/tcp"]}`, post + `endpoint {"hostName":"10.0.0.4"}`,
	}
	if diff := cmp.Diff(want, s.requests); diff != "" {
		t.Error(diff)
	}
	same := newServer(t, 409, `{"code":409,"result":"endpoint 10.0.0.1_ping exists already with the same content"}`)
	if got := run(t, kind, same.at("apply -f -")...); got != (result{ExitOK, "unchanged\n", ""}) {
		t.Errorf("one that is there: %+v", got)
	}
	bad := newServer(t, 400, `{"code":400,"result":"there is no property \"x\""}`)
	if got := run(t, kind, bad.at("apply -f -")...); got.code != ExitRefused ||
		got.stderr != "Error: endpoint 10.0.0.1: there is no property \"x\"; the services, and endpoints before it, are applied\n" {
		t.Errorf("one that is refused: %+v", got)
	}
}

func TestApplyRefused(t *testing.T) {
	t.Parallel()
	s := newServer(t, 200, success)
	for file, message := range map[string]string{
		"":                                      "there is no service in it, and no endpoint",
		"# nothing\n---\n":                      "there is no service in it, and no endpoint",
		"a: [":                                  "document 1: ",
		"a: 1\na: 2":                            `key "a" already set in map`,
		"- 1":                                   "it is neither a service nor a list",
		"word":                                  "it is neither a service nor a list",
		"kind: Loadbalancer":                    `apiVersion "" is not netlox/v1`,
		"apiVersion: netlox/v1\nkind: Firewall": `kind "Firewall" is not available yet`,
		"apiVersion: netlox/v1\nkind: lb":       "spec is missing",
		oneYAML + "---\nlbAttr: 1":              "document 2: ",
	} {
		got := run(t, file, s.at("apply -f -")...)
		if got.code != ExitUsage || got.stdout != "" || !strings.Contains(got.stderr, message) {
			t.Errorf("%q: %+v, want %q", file, got, message)
		}
	}
	if got := run(t, "", s.at("apply -f /nowhere")...); got.code != ExitUsage || !strings.Contains(got.stderr, "open /nowhere: no such file") {
		t.Errorf("%+v", got)
	}
	if len(s.requests) > 0 {
		t.Errorf("requests were made: %q", s.requests)
	}
}

// FuzzFile holds that any file makes a request in JSON, or is refused.
func FuzzFile(f *testing.F) {
	f.Add(oneYAML)
	f.Add(oneJSON)
	f.Add("---\n---\nkind: lb\napiVersion: netlox/v1\nspec: ~\n")
	f.Add("lbAttr: [~, 1, {}]")
	f.Fuzz(func(t *testing.T, file string) {
		m, err := readManifest([]byte(file))
		if err != nil {
			return
		}
		for _, request := range slices.Concat(m.services, m.endpoints) {
			if !json.Valid(request) {
				t.Fatalf("%q made %q", file, request)
			}
		}
	})
}

// FuzzCreate holds that no flag of create lb makes a request that is not meant.
func FuzzCreate(f *testing.F) {
	f.Add("20.20.20.1", "2020:5001", "31.31.31.1:1", "rr", "default")
	f.Add("2001:db8::1", "80:80", "[2001:db8::2]:8080:0", "2", "0")
	f.Fuzz(func(t *testing.T, vip, ports, endpoint, algorithm, mode string) {
		c := createFlags{tcp: []string{ports}, endpoints: []string{endpoint}}
		cmd := &cobra.Command{}
		c.fieldFlags.register(cmd)
		if cmd.Flags().Set("select", algorithm) != nil || cmd.Flags().Set("mode", mode) != nil {
			return
		}
		list, err := c.entries(vip)
		if err != nil {
			return
		}
		for _, e := range list {
			p := e.ServiceArguments.Port
			if len(e.Endpoints) != 1 || p < 1 || p > 65535 || e.Endpoints[0].TargetPort < 1 || e.Endpoints[0].TargetPort > 65535 {
				t.Fatalf("%q %q %q: %+v", vip, ports, endpoint, e)
			}
		}
	})
}
