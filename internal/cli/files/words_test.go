package files_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/cli/session"
	"loxilb/test/clitest"
)

const savedNumbers = `{"objects":[
{"apiVersion":"netlox/v1","kind":"Loadbalancer","spec":{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"protocol":"tcp","mode":1,"sel":2,"bgp":false,"block":0,"name":"","proberesp":"0"},"endpoints":[{"endpointIP":"10.0.0.1","targetPort":80,"weight":0}]}},
{"apiVersion":"netlox/v1","kind":"Policy","spec":{"policyIdent":"p","policyInfo":{"type":1,"committedInfoRate":50},"targetObject":{"attachment":2,"polObjName":"web"}}},
{"apiVersion":"netlox/v1","kind":"Mirror","spec":{"mirrorIdent":"m","mirrorInfo":{"type":3,"port":""},"targetObject":{"attachment":4,"mirrObjName":"preference:1"}}},
{"apiVersion":"netlox/v1","kind":"Firewall","spec":{"ruleArguments":{"protocol":6,"preference":1},"opts":{"drop":true,"fwMark":0}}},
{"apiVersion":"netlox/v1","kind":"Firewall","spec":{"ruleArguments":{"protocol":89,"preference":2},"opts":{"drop":true,"fwMark":0}}}]}`

const savedWords = `apiVersion: netlox/v1
kind: Loadbalancer
spec:
  endpoints:
    - endpointIP: 10.0.0.1
      targetPort: 80
      weight: 0
  serviceArguments:
    externalIP: 20.20.20.1
    mode: onearm
    port: 80
    proberesp: "0"
    protocol: tcp
    select: priority
---
apiVersion: netlox/v1
kind: Policy
spec:
  policyIdent: p
  policyInfo:
    committedInfoRate: 50
    type: srTCM
  targetObject:
    attachment: service
    polObjName: web
---
apiVersion: netlox/v1
kind: Mirror
spec:
  mirrorIdent: m
  mirrorInfo:
    port: ""
    type: vxlan
  targetObject:
    attachment: firewall
    mirrObjName: preference:1
---
apiVersion: netlox/v1
kind: Firewall
spec:
  opts:
    drop: true
    fwMark: 0
  ruleArguments:
    preference: 1
    protocol: tcp
---
apiVersion: netlox/v1
kind: Firewall
spec:
  opts:
    drop: true
    fwMark: 0
  ruleArguments:
    preference: 2
    protocol: 89
`

// TestSavedWords checks that saved files have words where the contract has numbers, and that apply
// sends the numbers of words that the server does not know.
func TestSavedWords(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "all.yaml")
	s := clitest.NewServer(t, 200, savedNumbers)
	if got := clitest.Run(t, "", s.Args("save -f "+file)...); got.Code != session.ExitOK {
		t.Fatalf("got %+v, want exit code ExitOK", got)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(savedWords, string(text)); diff != "" {
		t.Fatalf("the saved file differs (-want +got):\n%s", diff)
	}
	s = clitest.NewServer(t, 200, `{"result":"Success","changes":[]}`)
	if got := clitest.Run(t, "", s.Args("apply -f "+file)...); got != (clitest.Result{Stdout: "unchanged\n"}) {
		t.Fatalf(`got %+v, want "unchanged\n" on stdout`, got)
	}
	type object struct {
		Kind string         `json:"kind"`
		Spec map[string]any `json:"spec"`
	}
	var saved, sent struct {
		Objects []object `json:"objects"`
	}
	_, body, _ := strings.Cut(s.Requests[len(s.Requests)-1], "/config/apply ")
	if err := json.Unmarshal([]byte(savedNumbers), &saved); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(body), &sent); err != nil {
		t.Fatal(err)
	}
	saved.Objects[0].Spec["serviceArguments"] = map[string]any{
		"externalIP": "20.20.20.1", "port": float64(80), "protocol": "tcp", "mode": "onearm", "select": "priority", "proberesp": "0",
	}
	if diff := cmp.Diff(saved, sent); diff != "" {
		t.Errorf("sent objects differ from saved ones (-want +got):\n%s", diff)
	}
}

// TestWrongWords checks that an unknown word is an error with its position, and that nothing is
// sent.
func TestWrongWords(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, `{"result":"Success","changes":[]}`)
	got := clitest.Run(t, "apiVersion: netlox/v1\nkind: Firewall\nspec:\n  ruleArguments:\n    Protocol: tpc\n", s.Args("apply -f -")...)
	if got.Code != session.ExitRefused || len(s.Requests) != 0 || !strings.Contains(got.Stderr, `-:5:15: protocol "tpc" is not a protocol`) {
		t.Errorf("got %+v %q, want exit code ExitRefused, no s.Requests, "+
			"`-:5:15: protocol \"tpc\" is not a protocol` on stderr",
			got, s.Requests)
	}
}

// TestPlanInWords checks that a plan has the words and names of the files, not the contract's
// numbers.
func TestPlanInWords(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, `{"result":"Success","unchanged":0,"changes":[
{"kind":"Loadbalancer","name":"20.20.20.1:80/tcp","action":"change","fields":[
 {"field":"serviceArguments.mode","before":"0","after":"1"},{"field":"serviceArguments.sel","before":"0","after":"2"}]},
{"kind":"Firewall","name":"p","action":"change","fields":[{"field":"ruleArguments.protocol","before":"6","after":"89"}]},
{"kind":"Mirror","name":"m","action":"change","fields":[{"field":"mirrorInfo.type","before":"","after":"3"}]}]}`)
	path := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(path, []byte(savedWords), 0o600); err != nil {
		t.Fatal(err)
	}
	r := clitest.Run(t, "", s.Args("plan -f "+path)...)
	for _, line := range []string{
		"serviceArguments.mode: default -> onearm", "serviceArguments.select: rr -> priority", "ruleArguments.protocol: tcp -> 89", "mirrorInfo.type: none -> vxlan",
	} {
		if !strings.Contains(r.Stdout, "    "+line+"\n") {
			t.Errorf("no line %q: %+v", line, r)
		}
	}
}
