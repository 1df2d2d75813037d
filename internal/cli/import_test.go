package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
    persistTimeout: 60
    port: 80
    protocol: tcp
    sel: 3
`
	got := run(t, rules, "import", "ipvsadm", "-")
	if diff := cmp.Diff(result{ExitOK, want, ""}, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Error(diff)
	}
	path := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(path, []byte(rules+"-A -f 7 -s rr\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	note := path + ":4: a service of the firewall mark 7 has no address: create one for each VIP, with --mark\n"
	if got := run(t, "", "import", "ipvsadm", path); got != (result{ExitOK, want, note}) {
		t.Errorf("%+v", got)
	}
	if got := run(t, "", "import", "ipvsadm", path, "--strict"); got.code != ExitRefused || got.stdout != "" || !strings.HasPrefix(got.stderr, note) {
		t.Errorf("%+v", got)
	}
	for args, says := range map[string]string{
		"import nginx -": "is no format", "import nft -": "there is no service in it", "import ipvsadm /nowhere": "no such file", "import nft": "accepts 2 arg",
		"export nginx": "is no format that can be exported",
	} {
		if got := run(t, "", strings.Fields(args)...); got.code == ExitOK || got.stdout != "" || !strings.Contains(got.stderr, says) {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

func TestExport(t *testing.T) {
	t.Parallel()
	s := newServer(t, 200, `{"lbAttr":[{"serviceArguments":{"externalIP":"10.0.0.1","port":80,"protocol":"tcp","sel":4,"mode":0,"name":"web"},`+
		`"endpoints":[{"endpointIP":"192.168.0.1","targetPort":8080,"weight":3,"state":"active","counter":"1:2"}]},`+
		`{"serviceArguments":{"externalIP":"10.0.0.1","port":90,"portMax":99,"protocol":"tcp","sel":0,"mode":0},"endpoints":[{"endpointIP":"192.168.0.1","targetPort":8080,"weight":1}]}]}`)
	const text, note = "-A -t 10.0.0.1:80 -s wlc\n-a -t 10.0.0.1:80 -r 192.168.0.1:8080 -m -w 3\n",
		"3: service 10.0.0.1:90-99/tcp: IPVS has no ranges of ports: it is left out\n"
	if got := run(t, "", s.at("export ipvsadm")...); got != (result{ExitOK, text, note}) {
		t.Errorf("%+v", got)
	}
	if got := run(t, "", s.at("export ipvsadm --strict")...); got.code != ExitRefused || got.stdout != "" {
		t.Errorf("%+v", got)
	}
}
