package api_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loxilb/internal/api/manifest"
	"loxilb/test/net/rig"
)

// TestApplySavedFile checks, for all kinds of objects, that applying a saved file changes nothing
// and creates no revision, and that saving again returns the same file, also after a restart.
func TestApplySavedFile(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "cluster.key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := rig.New(t, rig.Options{Args: []string{"--bgp", "--cluster-key=" + key}})
	policy := filepath.Join(t.TempDir(), "policy.yaml") // no command creates policies
	if err := os.WriteFile(policy,
		[]byte("apiVersion: netlox/v1\nkind: BGPPolicy\nspec: {name: low, statements: [{name: all, actions: {bgpActions: {setMed: \"+50\"}}}]}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, object := range []string{
		"create lb 20.20.20.1 --tcp=2020:5001 --endpoints=31.31.31.1:1,32.32.32.1:2 --name=web --select=hash",
		"create endpoint 31.31.31.1 --probetype=tcp --probeport=5001 --period=7",
		"drain endpoint 32.32.32.1 --deadline=10h",
		"create ip 10.9.0.1/24 ep1",
		"create route 10.8.0.0/16 31.31.31.1",
		"create neighbor 31.31.31.77 ep1 --macAddress=02:00:00:00:00:77",
		"create vxlan 78 ep1",
		"create vxlanpeer 78 31.31.31.1",
		"create vlan 100",
		"create vlanmember 100 vxlan78",
		"create fdb 02:00:00:00:00:78 vxlan78",
		"create policy slow --rate=10:10 --target=web:service",
		"create mirror copy --mirrorInfo=type:span,port:ep3 --targetObject=attachment:service,mirrObjName:web",
		"create firewall --firewallRule=sourceIP:203.0.113.0/24,preference:200 --drop",
		"create bfd 31.31.31.1 --sourceIP=31.31.31.254",
		"create clusternode 31.31.31.2",
		"create session user1 88.88.88.88 --accessNetworkTunnel=1:100.100.100.1 --coreNetworkTunnel=1:17.17.17.1",
		"create sessionulcl user1 --ulclArgs=16:20.20.20.1",
		"set bgp --asn=65000 --router-id=10.0.0.1",
		"create bgpneighbor 31.31.31.1 65001",
		"create bgpset prefix/vips --prefix=20.20.20.0/24:32..32",
		"apply -f " + policy,
		"create bgpapply 31.31.31.1/export --policy=low",
	} {
		r.Loxicmd("%s", object)
	}
	file := filepath.Join(t.TempDir(), "saved.yaml")
	save := func() string {
		t.Helper()
		r.Loxicmd("save -f %s", file)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	saved := save()
	for _, k := range manifest.Kinds() {
		if !strings.Contains(saved, "kind: "+k.Document+"\n") {
			t.Errorf("no object of the kind %s was saved:\n%s", k.Document, saved)
		}
	}
	for _, words := range []string{"mode: default", "select: hash", "attachment: service", "type: span", "type: trTCM"} {
		if !strings.Contains(saved, " "+words+"\n") {
			t.Errorf("%q is not in\n%s", words, saved)
		}
	}
	converged := func(when string) {
		t.Helper()
		before := r.Loxicmd("get revisions")
		if out := r.Loxicmd("plan -f %s --prune", file); out != "nothing to do\n" {
			t.Errorf("a plan %s shows changes: %s", when, out)
		}
		if out := r.Loxicmd("apply -f %s --prune", file); strings.Contains(out, "changed,") || strings.Contains(out, "added,") {
			t.Errorf("an apply %s makes changes: %s", when, out)
		}
		if after := r.Loxicmd("get revisions"); after != before {
			t.Errorf("%s: an apply that changes nothing has created a revision:\n%s\nbefore:\n%s", when, after, before)
		}
		if again := save(); again != saved {
			t.Errorf("%s: the saved file is\n%s\nwant\n%s", when, again, saved)
		}
	}
	converged("at once")
	converged("once more")
	r.Kill()
	r.Restart()
	converged("after a restart")
}
