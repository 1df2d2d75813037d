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

func TestImport(t *testing.T) {
	t.Parallel()
	const rules = "-A -t 10.0.0.1:80 -s wrr -p 60\n-a -t 10.0.0.1:80 -r 192.168.0.1:8080 -m -w 3\n-a -t 10.0.0.1:80 -r 192.168.0.2:8080 -m -w 0\n"
	want := `---
apiVersion: netlox/v1
kind: Loadbalancer
spec:
  endpoints:
  - endpointIP: 192.168.0.1
    targetPort: 8080
    weight: 3
  - endpointIP: 192.168.0.2
    targetPort: 8080
    weight: 0
  serviceArguments:
    externalIP: 10.0.0.1
    mode: default
    persistTimeout: 60
    port: 80
    protocol: tcp
    select: persist
`
	got := clitest.Run(t, rules, "import", "ipvsadm", "-")
	if diff := cmp.Diff(clitest.Result{Stdout: want}, got); diff != "" {
		t.Errorf("exit code or output differ (-want +got):\n%s", diff)
	}
	path := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(path, []byte(rules+"-A -f 7 -s rr\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	note := path + ":4: a service of the firewall mark 7 has no address: create one for each VIP, with --mark\n"
	if got := clitest.Run(t, "", "import", "ipvsadm", path); got != (clitest.Result{Stdout: want, Stderr: note}) {
		t.Errorf("got %+v, want %q on stdout and %q on stderr", got, want, note)
	}
	if got := clitest.Run(t, "", "import", "ipvsadm", path, "--strict"); got.Code != session.ExitRefused || got.Stdout != "" || !strings.HasPrefix(got.Stderr, note) {
		t.Errorf("got %+v, want exit code ExitRefused, and nothing but the note %q", got, note)
	}
	for args, says := range map[string]string{
		"import nginx -": "is unknown", "import nft -": "contains no service", "import ipvsadm /nowhere": "no such file", "import nft": "accepts 2 arg",
		"export nginx": "is unknown (allowed: ipvsadm)",
	} {
		if got := clitest.Run(t, "", strings.Fields(args)...); got.Code == session.ExitOK || got.Stdout != "" || !strings.Contains(got.Stderr, says) {
			t.Errorf("%s: got %+v, want a failure, nothing on stdout, %q in it", args, got, says)
		}
	}
}

func TestExport(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, `{"lbAttr":[{"serviceArguments":{"externalIP":"10.0.0.1","port":80,"protocol":"tcp","sel":4,"mode":0,"name":"web"},`+
		`"endpoints":[{"endpointIP":"192.168.0.1","targetPort":8080,"weight":3,"state":"active","counter":"1:2"}]},`+
		`{"serviceArguments":{"externalIP":"10.0.0.1","port":90,"portMax":99,"protocol":"tcp","sel":0,"mode":0},`+
		`"endpoints":[{"endpointIP":"192.168.0.1","targetPort":8080,"weight":1}]}]}`)
	const text, note = "-A -t 10.0.0.1:80 -s wlc\n-a -t 10.0.0.1:80 -r 192.168.0.1:8080 -m -w 3\n",
		"3: service 10.0.0.1:90-99/tcp: IPVS has no ranges of ports: skipped\n"
	if got := clitest.Run(t, "", s.Args("export ipvsadm")...); got != (clitest.Result{Stdout: text, Stderr: note}) {
		t.Errorf("got %+v, want %q on stdout and %q on stderr", got, text, note)
	}
	if got := clitest.Run(t, "", s.Args("export ipvsadm --strict")...); got.Code != session.ExitRefused || got.Stdout != "" {
		t.Errorf("got %+v, want exit code ExitRefused, nothing on stdout", got)
	}
}
