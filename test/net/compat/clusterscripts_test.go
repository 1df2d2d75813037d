package compat_test

import (
	"encoding/json"
	"strings"
	"testing"

	"loxilb/test/net/rig"
)

// TestClusterScripts runs what scripts for two balancers of the existing loxilb do. They use its
// flags of a cluster without a secret, create services on both nodes, set the role as keepalived's
// script does, and read the role and the state of BGP. --compat keeps the API at the URL that they
// use.
func TestClusterScripts(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Args: []string{"--compat", "--config-path=" + t.TempDir(), "--bgp", "--cluster=172.17.0.3", "--self=0", "--ka=172.17.0.3:172.17.0.2"}})
	for _, line := range []string{
		"create lb 20.20.20.1 --tcp=2020:8080 --endpoints=31.31.31.1:1,32.32.32.1:1,33.33.33.1:1 --mode=fullnat --bgp",
		"create lb 20.20.20.2 --tcp=2020:8080 --endpoints=31.31.31.1:1,32.32.32.1:1,33.33.33.1:1 --mode=onearm --bgp",
		"create lb 20.20.20.2 --sctp=2020:8080 --endpoints=31.31.31.1:1,32.32.32.1:1,33.33.33.1:1 --mode=onearm --bgp",
		"create lb 20.20.20.3 --select=hash --tcp=8080:8080 --endpoints=31.31.31.1:1,32.32.32.1:1,33.33.33.1:1 --mode=dsr",
	} {
		r.Loxicmd("%s", line)
	}
	const api = "http://0.0.0.0:11111/netlox/v1/config/"
	shell := func(script string) string {
		out, err := r.LB.Run("sh", "-c", script)
		if err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
		return strings.TrimSpace(out)
	}
	r.EventuallyShows("get hastate", "MASTER") // by BFD, as the peer of --ka is silent; from here on, scripts set the role
	const asJSON = " -H 'accept: application/json' -H 'Content-Type: application/json'"
	for _, role := range []string{"BACKUP", "MASTER"} { // as keepalived's script calls, without a VIP
		shell("curl -sSf -X 'POST' '" + api + "cistate'" + asJSON + ` -d '{ "instance": "default", "state" : "` + role + `" }'`)
		var list struct{ Attr []struct{ State string } } // scripts read .Attr[0].state
		out := shell("curl -sX 'GET' '" + api + "cistate/all'" + asJSON)
		if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Attr) != 1 || list.Attr[0].State != role {
			t.Errorf("want the role %s: %v: %s", role, err, out)
		}
	}
	if out := r.Loxicmd("get bgpneigh"); strings.Contains(out, "rror") {
		t.Errorf(`got %v, want no "rror" in out`, out)
	}
	if log := r.Log(); !strings.Contains(log, "give all nodes the same --cluster-key") {
		t.Errorf("the log does not report why connections are not exchanged:\n%s", log)
	}
}
