package files_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loxilb/internal/cli/session"
	"loxilb/test/clitest"

	"github.com/google/go-cmp/cmp"
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

// document is a document with a service.
const document = "apiVersion: netlox/v1\nkind: Loadbalancer\nmetadata:\n  name: test\nspec:\n  serviceArguments: {externalIP: 20.20.20.1, port: 2020, protocol: tcp}\n" +
	"  endpoints:\n  - {endpointIP: 31.31.31.1, targetPort: 5001, weight: 1}\n"

// TestApplyNothingToConfirm checks that without a change nothing waits for confirmation, and that
// the output says so.
func TestApplyNothingToConfirm(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, `{"result":"Success","revision":7,"unchanged":1,"changes":[]}`)
	got := clitest.Run(t, oneYAML, s.Args("apply -f - --confirm=5")...)
	if want := (clitest.Result{Stdout: "unchanged: there is no change to confirm\n"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestPruneKindsRefused checks that a refused kind is reported with the flag that has named it.
func TestPruneKindsRefused(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 400, `{"code":400,"field":"prune","message":"prune \"x\" is not a kind that this loxilb serves (allowed: all, Vlan)","reason":"is not a kind that this loxilb serves"}`)
	got := clitest.Run(t, oneYAML, s.Args("apply -f - --prune-kinds=x")...)
	if want := "Error: --prune-kinds \"x\" is not a kind that this loxilb serves (allowed: all, Vlan)\n"; got.Stderr != want {
		t.Errorf("got %+v, want %q on stderr", got, want)
	}
}

// TestConfirmed checks that confirm prints which revision was confirmed, and by which user.
func TestConfirmed(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, `{"result":"Success","message":"revision 9 confirmed by root"}`)
	if got := clitest.Run(t, "", s.Args("confirm")...); got != (clitest.Result{Stdout: "revision 9 confirmed by root\n"}) {
		t.Errorf(`got %+v, want "revision 9 confirmed by root\n" on stdout`, got)
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const spec = `{"kind":"Loadbalancer","spec":{"serviceArguments":{"externalIP":"20.20.20.1","port":2020,"protocol":"tcp"},` +
		`"endpoints":[{"endpointIP":"31.31.31.1","targetPort":5001,"weight":1}]}}`
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
		{
			"apply --endpoint " + dir + "/ep.txt --prune-kinds=all", "",
			`{"doing":"apply -f ` + dir + `/ep.txt","objects":[{"kind":"Endpoint","spec":{"hostName":"10.0.0.1"}}],"prune":["all"]}`,
		},
		{"apply -f " + dir + "/a", "", `{"doing":"apply -f ` + dir + `/a","objects":[` + named + `,{"kind":"Loadbalancer","spec":` + oneJSON + `}]}`},
	} {
		s := clitest.NewServer(t, 200, applied)
		got := clitest.Run(t, tc.stdin, s.Args(tc.args)...)
		if got != (clitest.Result{Stdout: "success: revision 7: 1 added, 0 changed, 0 removed, 1 unchanged\n"}) || len(s.Requests) != 1 {
			t.Errorf("%s: got %+v and requests %q, want one request, and success with revision 7", tc.args, got, s.Requests)
			continue
		}
		if diff := cmp.Diff("POST /netlox/v1/config/apply "+tc.want, s.Requests[0]); diff != "" {
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

// TestApplyRefused checks that all errors are reported at once, with file, line and column.
func TestApplyRefused(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, applied)
	for file, message := range map[string]string{
		"":                 "- contains no object",
		"# nothing\n---\n": "- contains no object",
		"a: [":             "-:1:1: it is not YAML: ",
		"a: 1\n---\nkind: lb\napiVersion: netlox/v1\nspec: {a: 1,\n  a: 2}": "-:1:1: kind is missing: one of Vlan, VlanMember, Vxlan, VxlanPeer, " +
			"IPaddress, Neighbor, FDB, Route, Endpoint, " +
			"Loadbalancer, Drain, Policy, Mirror, Firewall, BGP, BGPDefinedSet, BGPPolicy, BGPPolicyApply, BGPNeighbor, BFD, ClusterNode, Session, SessionULCL\n-:6:3: a is given twice\n",
		"- 1":                                  "-:1:3: it is neither an object nor a list of objects",
		"{\n \"lbAttr\": [}":                   "-:2:13: it is not JSON: invalid character '}' looking for beginning of value",
		"kind: Loadbalancer":                   "-:1:1: apiVersion is not netlox/v1",
		"apiVersion: netlox/v1\nkind: Unicorn": `-:2:7: kind "Unicorn" is not known: one of Vlan, `,
		"apiVersion: netlox/v1\nkind: lb":      "-:1:1: spec is missing: the fields that POST takes for a Loadbalancer",
	} {
		got := clitest.Run(t, file, s.Args("apply -f -")...)
		if got.Code == session.ExitOK || got.Stdout != "" || !strings.Contains(got.Stderr, message) {
			t.Errorf("%q: %+v, want %q", file, got, message)
		}
	}
	if got := clitest.Run(t, "", s.Args("apply -f /nowhere")...); got.Code != session.ExitUsage || !strings.Contains(got.Stderr, "/nowhere: no such file") {
		t.Errorf(`got %+v, want exit code ExitUsage, "/nowhere: no such file" on stderr`, got)
	}
	if len(s.Requests) > 0 {
		t.Errorf("requests were made: %q", s.Requests)
	}
}

// TestApplyLocates checks that errors of the server are mapped to positions in the file.
func TestApplyLocates(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 400, `{"code":400,"message":"nothing was changed","result":"x","errors":[`+
		`{"index":0,"field":"endpoints[0].weight","message":"endpoints[0].weight is missing"},`+
		`{"index":1,"field":"serviceArguments.port","message":"port is wrong"},`+
		`{"index":1,"message":"it is given twice","other":0},{"index":1,"field":"endpoints[7].nothing","message":"far out"}]}`)
	got := clitest.Run(t, document+"---\n"+document, s.Args("apply -f -")...)
	want := "Error: nothing was changed:\n-:8:5: endpoints[0].weight is missing\n-:15:52: port is wrong\n-:10:1: it is given twice, also at -:1:1\n-:17:3: far out\n"
	want = strings.Replace(want, "-:8:5:", "-:8:56:", 1)
	if diff := cmp.Diff(clitest.Result{Code: session.ExitRefused, Stderr: want}, got); diff != "" {
		t.Errorf("exit code or output differ (-want +got):\n%s", diff)
	}
	got = clitest.Run(t, "[\n"+oneJSON+",\n"+oneJSON+"]", s.Args("apply -f -")...)
	want = "Error: nothing was changed:\n-:2:69: endpoints[0].weight is missing\n-:3:126: port is wrong\n-:3:1: it is given twice, also at -:2:1\n-:3:14: far out\n"
	if diff := cmp.Diff(clitest.Result{Code: session.ExitRefused, Stderr: want}, got); diff != "" {
		t.Errorf("exit code or output differ (-want +got):\n%s", diff)
	}
}

// TestApplyUndone checks that a rollback that keeps changes of others is not reported as complete.
func TestApplyUndone(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 400,
		`{"code":400,"message":"the change was undone, except for objects that others have changed since (service [::1]:80/tcp): objects[0]: no","result":"x",`+
			`"errors":[{"index":0,"message":"no"}]}`)
	want := "Error: the change was undone, except for objects that others have changed since (service [::1]:80/tcp):\n-:1:1: no\n"
	if got := clitest.Run(t, document, s.Args("apply -f -")...); got.Code != session.ExitRefused || got.Stderr != want {
		t.Errorf("got %+v, want exit code %d and on stderr: %s", got, session.ExitRefused, want)
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, `{"result":"Success","unchanged":2,"changes":[{"kind":"Loadbalancer","name":"a","action":"add"},`+
		`{"kind":"Loadbalancer","name":"b","action":"change","fields":[{"field":"mode","before":"0","after":"1"},{"field":"name","after":"web"}],`+
		`"moreFields":3,"connections":12,"cut":4},`+
		`{"kind":"Loadbalancer","name":"d","action":"change","fields":[{"field":"endpoints[1.1.1.1 80].endpointIP","before":"1.1.1.1"},`+
		`{"field":"endpoints[1.1.1.1 80].targetPort","before":"80"},{"field":"endpoints[1.1.1.1 80].weight","before":"1"},`+
		`{"field":"endpoints[1.1.1.2 80].backup","after":"true"},{"field":"endpoints[1.1.1.2 80].endpointIP","after":"1.1.1.2"},{"field":"endpoints[1.1.1.2 80].weight","after":"2"},`+
		`{"field":"endpoints[1.1.1.3 80].weight","before":"1","after":"2"},{"field":"secondaryIPs[1.1.1.9].secondaryIP","after":"1.1.1.9"}]},`+
		`{"kind":"Firewall","name":"c","action":"remove","pruned":true,"warning":"ssh of 10.0.0.1 is cut"}],"ruleCut":9}`)
	got := clitest.Run(t, oneYAML, s.Args("plan -f -")...)
	want := "+ Loadbalancer a\n~ Loadbalancer b: cuts 4 of 12 live connections\n    mode: 0 -> 1\n    name: none -> web\n    and 3 more\n" +
		"~ Loadbalancer d\n    - endpoints[1.1.1.1 80]: weight 1\n    + endpoints[1.1.1.2 80]: backup true, weight 2\n    endpoints[1.1.1.3 80].weight: 1 -> 2\n" +
		"    secondaryIPs[1.1.1.9].secondaryIP: none -> 1.1.1.9\n" +
		"- Firewall c, which is not in the files\n    WARNING: ssh of 10.0.0.1 is cut\n" +
		"1 to add, 2 to change, 1 to remove, 2 unchanged; cuts 4 live connections, firewall rules would end 9\n"
	if diff := cmp.Diff(clitest.Result{Code: session.ExitPlanned, Stdout: want}, got); diff != "" {
		t.Errorf("exit code or output differ (-want +got):\n%s", diff)
	}
	if len(s.Requests) != 1 || !strings.Contains(s.Requests[0], `"dryRun":true`) {
		t.Errorf("got %q, want 1 element, `\"dryRun\":true` in s.Requests[0]", s.Requests)
	}
	s = clitest.NewServer(t, 200, `{"result":"Success","unchanged":1,"changes":[]}`)
	if got := clitest.Run(t, oneYAML, s.Args("plan -f -")...); got != (clitest.Result{Stdout: "nothing to do\n"}) {
		t.Errorf(`got %+v, want "nothing to do\n" on stdout`, got)
	}
	for _, args := range []string{"plan", "plan -f /nowhere", "plan --no-such-flag", "plan -f - -p 0"} {
		if got := clitest.Run(t, "", s.Args(args)...); got.Code != session.ExitRefused {
			t.Errorf("%s: got %+v, want exit code ExitRefused", args, got)
		}
	}
}

func TestRevisions(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200,
		`{"revisionAttr":[{"revision":9,"time":"2026-01-02T03:04:05Z","who":"ann","from":"10.0.0.1","doing":"apply","created":1,"confirm":"2026-01-02T03:05:05Z"}]}`)
	got := clitest.Run(t, "", s.Args("get revisions")...)
	if got.Code != session.ExitOK || !strings.Contains(got.Stdout, "| ann | 10.0.0.1 |") {
		t.Errorf(`got %+v, want exit code ExitOK, "| ann | 10.0.0.1 |" on stdout`, got)
	}
	for args, want := range map[string]string{
		"rollback 7 --managed": `POST /netlox/v1/config/rollback {"managed":true,"revision":7}`,
		"rollback 0 --dry-run": `POST /netlox/v1/config/rollback {"dryRun":true,"revision":0}`,
		"rollback":             `POST /netlox/v1/config/rollback {"revision":8}`,
		"confirm":              `POST /netlox/v1/config/confirm {}`,
		"confirm 9":            `POST /netlox/v1/config/confirm {"revision":9}`,
	} {
		s.Requests = nil
		got := clitest.Run(t, "", s.Args(args)...)
		if last := s.Requests[len(s.Requests)-1]; got.Code != session.ExitOK || last != want {
			t.Errorf("%s: got %+v, last line %q, want success and last line %q", args, got, last, want)
		}
	}
	if got := clitest.Run(t, "", s.Args("rollback x")...); got.Code != session.ExitUsage {
		t.Errorf("got %+v, want exit code ExitUsage", got)
	}
}
