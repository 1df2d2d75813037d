package cli

import (
	"os"
	"path/filepath"
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

const applied = `{"result":"Success","revision":7,"unchanged":1,"changes":[{"kind":"Loadbalancer","name":"20.20.20.1:2020/tcp","action":"add"}]}`

// document is a service as a document.
const document = "apiVersion: netlox/v1\nkind: Loadbalancer\nmetadata:\n  name: test\nspec:\n  serviceArguments: {externalIP: 20.20.20.1, port: 2020, protocol: tcp}\n" +
	"  endpoints:\n  - {endpointIP: 31.31.31.1, targetPort: 5001, weight: 1}\n"

func TestApply(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const spec = `{"kind":"Loadbalancer","spec":{"serviceArguments":{"externalIP":"20.20.20.1","port":2020,"protocol":"tcp"},"endpoints":[{"endpointIP":"31.31.31.1","targetPort":5001,"weight":1}]}}`
	named := strings.Replace(spec, `"spec"`, `"metadata":{"name":"test"},"spec"`, 1)
	path := write(t, dir, "f", oneYAML)
	write(t, dir, "a/1.yaml", document)
	write(t, dir, "a/b/2.json", oneJSON)
	write(t, dir, "a/readme", "no object")
	write(t, dir, "ep.txt", `{"Attr":[{"hostName":"10.0.0.1"},{"hostName":"10.0.0.2","services":["x"]}]}`)
	for _, tc := range []struct{ args, stdin, want string }{
		{"apply -f -", oneYAML, `{"doing":"apply -f -","objects":[` + spec + `]}`},
		{"apply -f -", document + "---\n# nothing\n---\n" + oneYAML, `{"doing":"apply -f -","objects":[` + named + `,` + spec + `]}`},
		{"create -f " + path, "", `{"doing":"create -f ` + path + `","objects":[` + spec + `]}`},
		{"delete -f " + path, "", `{"doing":"delete -f ` + path + `","objects":[` + spec + `],"remove":true}`},
		{"apply -l " + path + " --confirm=60s --prune", "", `{"confirm":60,"doing":"apply -f ` + path + `","objects":[` + spec + `],"prune":["Loadbalancer"]}`},
		{"apply --endpoint " + dir + "/ep.txt --prune-kinds=all", "", `{"doing":"apply -f ` + dir + `/ep.txt","objects":[{"kind":"Endpoint","spec":{"hostName":"10.0.0.1"}}],"prune":["all"]}`},
		{"apply -f " + dir + "/a", "", `{"doing":"apply -f ` + dir + `/a","objects":[` + named + `,{"kind":"Loadbalancer","spec":` + oneJSON + `}]}`},
	} {
		s := newServer(t, 200, applied)
		got := run(t, tc.stdin, s.at(tc.args)...)
		if got != (result{ExitOK, "success: revision 7: 1 added, 0 changed, 0 removed, 1 unchanged\n", ""}) || len(s.requests) != 1 {
			t.Errorf("%s: %+v %q", tc.args, got, s.requests)
			continue
		}
		if diff := cmp.Diff("POST /netlox/v1/config/apply "+tc.want, s.requests[0]); diff != "" {
			t.Errorf("%s: %s", tc.args, diff)
		}
	}
}

func write(t testing.TB, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Whatever is wrong is said with its file, line and column, all of it at once.
func TestApplyRefused(t *testing.T) {
	t.Parallel()
	s := newServer(t, 200, applied)
	for file, message := range map[string]string{
		"":                 "-: there is no object in it",
		"# nothing\n---\n": "-: there is no object in it",
		"a: [":             "-:1:1: it is not YAML: ",
		"a: 1\n---\nkind: lb\napiVersion: netlox/v1\nspec: {a: 1,\n  a: 2}": "-:1:1: kind is missing: one of Vlan, VlanMember, Vxlan, VxlanPeer, IPaddress, Neighbor, FDB, Route, Endpoint, " +
			"Loadbalancer, Drain, Policy, Mirror, Firewall, Session, SessionULCL, BFD\n-:6:3: a is there twice\n",
		"- 1":                                  "-:1:3: it is neither an object nor a list of objects",
		"{\n \"lbAttr\": [}":                   "-:2:13: it is not JSON: invalid character '}' looking for beginning of value",
		"kind: Loadbalancer":                   "-:1:1: apiVersion is not netlox/v1",
		"apiVersion: netlox/v1\nkind: Unicorn": `-:2:7: kind "Unicorn" is not known: one of Vlan, `,
		"apiVersion: netlox/v1\nkind: lb":      "-:1:1: spec is missing: what POST takes of a Loadbalancer",
	} {
		got := run(t, file, s.at("apply -f -")...)
		if got.code == ExitOK || got.stdout != "" || !strings.Contains(got.stderr, message) {
			t.Errorf("%q: %+v, want %q", file, got, message)
		}
	}
	if got := run(t, "", s.at("apply -f /nowhere")...); got.code != ExitUsage || !strings.Contains(got.stderr, "/nowhere: no such file") {
		t.Errorf("%+v", got)
	}
	if len(s.requests) > 0 {
		t.Errorf("requests were made: %q", s.requests)
	}
}

// What the server refuses is found in the file again.
func TestApplyLocates(t *testing.T) {
	t.Parallel()
	s := newServer(t, 400, `{"code":400,"message":"nothing was changed","result":"x","errors":[`+
		`{"index":0,"field":"endpoints[0].weight","message":"endpoints[0].weight is missing"},`+
		`{"index":1,"field":"serviceArguments.port","message":"port is wrong"},`+
		`{"index":1,"message":"it is there twice","other":0},{"index":1,"field":"endpoints[7].nothing","message":"far out"}]}`)
	got := run(t, document+"---\n"+document, s.at("apply -f -")...)
	want := "Error: nothing was changed:\n-:8:5: endpoints[0].weight is missing\n-:15:52: port is wrong\n-:10:1: it is there twice, also at -:1:1\n-:17:3: far out\n"
	want = strings.Replace(want, "-:8:5:", "-:8:56:", 1)
	if diff := cmp.Diff(result{ExitRefused, "", want}, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Error(diff)
	}
	got = run(t, "[\n"+oneJSON+",\n"+oneJSON+"]", s.at("apply -f -")...)
	want = "Error: nothing was changed:\n-:2:69: endpoints[0].weight is missing\n-:3:126: port is wrong\n-:3:1: it is there twice, also at -:2:1\n-:3:14: far out\n"
	if diff := cmp.Diff(result{ExitRefused, "", want}, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Error(diff)
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	s := newServer(t, 200, `{"result":"Success","unchanged":2,"changes":[{"kind":"Loadbalancer","name":"a","action":"add"},`+
		`{"kind":"Loadbalancer","name":"b","action":"change","fields":[{"field":"mode","before":"0","after":"1"},{"field":"name","after":"web"}],"moreFields":3,"connections":12,"cut":4},`+
		`{"kind":"Firewall","name":"c","action":"remove","pruned":true,"warning":"ssh of 10.0.0.1 is cut"}]}`)
	got := run(t, oneYAML, s.at("plan -f -")...)
	want := "+ Loadbalancer a\n~ Loadbalancer b: cuts 4 of 12 live connections\n    mode: 0 -> 1\n    name: none -> web\n    and 3 more\n" +
		"- Firewall c, which is not in the files\n    WARNING: ssh of 10.0.0.1 is cut\n" +
		"1 to add, 1 to change, 1 to remove, 2 unchanged; 4 live connections would lose their service or endpoint\n"
	if diff := cmp.Diff(result{ExitPlanned, want, ""}, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Error(diff)
	}
	if len(s.requests) != 1 || !strings.Contains(s.requests[0], `"dryRun":true`) {
		t.Errorf("%q", s.requests)
	}
	s = newServer(t, 200, `{"result":"Success","unchanged":1,"changes":[]}`)
	if got := run(t, oneYAML, s.at("plan -f -")...); got != (result{ExitOK, "nothing to do\n", ""}) {
		t.Errorf("%+v", got)
	}
	for _, args := range []string{"plan", "plan -f /nowhere", "plan --no-such-flag", "plan -f - -p 0"} {
		if got := run(t, "", s.at(args)...); got.code != ExitRefused {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

func TestRevisions(t *testing.T) {
	t.Parallel()
	s := newServer(t, 200, `{"revisionAttr":[{"revision":9,"time":"2026-01-02T03:04:05Z","who":"ann","from":"10.0.0.1","doing":"apply","created":1,"confirm":"2026-01-02T03:05:05Z"}]}`)
	got := run(t, "", s.at("get revisions")...)
	if got.code != ExitOK || !strings.Contains(got.stdout, "| ann | 10.0.0.1 |") {
		t.Errorf("%+v", got)
	}
	for args, want := range map[string]string{
		"rollback 7 --managed": `POST /netlox/v1/config/rollback {"managed":true,"revision":7}`,
		"rollback 0 --dry-run": `POST /netlox/v1/config/rollback {"dryRun":true,"revision":0}`,
		"rollback":             `POST /netlox/v1/config/rollback {"revision":8}`,
		"confirm":              `POST /netlox/v1/config/confirm {}`,
		"confirm 9":            `POST /netlox/v1/config/confirm {"revision":9}`,
	} {
		s.requests = nil
		got := run(t, "", s.at(args)...)
		if last := s.requests[len(s.requests)-1]; got.code != ExitOK || last != want {
			t.Errorf("%s: %+v %s", args, got, last)
		}
	}
	if got := run(t, "", s.at("rollback x")...); got.code != ExitUsage {
		t.Errorf("%+v", got)
	}
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
