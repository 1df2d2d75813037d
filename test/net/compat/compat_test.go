package compat_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// TestCompat checks that the daemon starts with the options of a manifest and a file saved by the
// existing loxilb. Other machines reach the API, and changes by the API stay in effect until the
// file changes.
func TestCompat(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "lbconfig.txt")
	var endpoints []string
	for _, n := range netnstest.StandardNetworks()[1:] {
		endpoints = append(endpoints, fmt.Sprintf(`{"counter":"0:0","endpointIP":"%s","state":"-","targetPort":5001,"weight":1}`, n.V4.Addr()))
	}
	saved := `{"lbAttr":[{"endpoints":[` + strings.Join(endpoints, ",") + `],"secondaryIPs":null,"serviceArguments":{"externalIP":"` + rig.VIP4 +
		`","port":2020,"protocol":"tcp","mode":0,"sel":0,"monitor":false}}]}`
	if err := os.WriteFile(file, []byte(saved), 0o600); err != nil {
		t.Fatal(err)
	}
	r := rig.New(t, rig.Options{Args: []string{"--compat", "--config-path=" + dir, "--bgp", "--egr-hooks", "--blacklist=cni[0-9a-z]|veth.|flannel.|cali.|tunl.|vxlan[.]calico"}})
	r.ServeNames()
	r.WantAnswers(rig.VIP4+":2020", "ep1", "ep2", "ep3")
	api := "http://" + rig.Join(netnstest.StandardNetworks()[0].GW4.String(), 11111)
	resp, err := r.Client.HTTPClient(rig.Patience).Get(api + "/netlox/v1/config/loadbalancer/all")
	if err != nil || resp.StatusCode != 200 {
		t.Fatal("another machine does not reach the API: ", err, resp)
	}
	_ = resp.Body.Close()
	for _, want := range []string{"level=WARN msg=\"the API is open because of --compat\" note=\"anyone who can reach 0.0.0.0:11111", "--egr-hooks has no effect", "objects=1\n"} {
		if !strings.Contains(r.Log(), want) {
			t.Errorf("the log has no %s", want)
		}
	}

	r.Loxicmd("save --all --config-path=%s", dir)
	r.Loxicmd("delete lb %s --tcp=2020", rig.VIP4)
	r.Stop()
	r.Restart()
	r.WantNoAnswer(rig.VIP4 + ":2020")
	soon := time.Now().Add(time.Minute)
	if err := os.Chtimes(file, soon, soon); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	r.Restart()
	r.WantAnswers(rig.VIP4+":2020", "ep1")
}
