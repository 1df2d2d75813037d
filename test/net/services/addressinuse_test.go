package services_test

import (
	"strings"
	"testing"

	"loxilb/test/net/rig"
)

// TestVIPOfLiveHost checks that the daemon refuses a VIP that is the address of a live host in a
// connected network, and that the host stays reachable. --force creates the service. Other services
// with this VIP then need no --force.
func TestVIPOfLiveHost(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	r.WantAnswers(rig.VIP4+":80", "ep1") // the kernel then has the host's MAC address
	const create = "create lb 31.31.31.1 --tcp=%s --endpoints=32.32.32.1:1"
	out, err := r.Command(strings.Fields(strings.ReplaceAll(create, "%s", "90:5001"))...)
	if err == nil || !strings.Contains(out+err.Error(), `"31.31.31.1" is the address of a live host`) {
		t.Fatalf("got %v, %s, want an error, `\"31.31.31.1\" is the address of a live host` in out+err.Error()",
			err, out)
	}
	if out := r.Loxicmd("get lb"); strings.Contains(out, "31.31.31.1") {
		t.Errorf("the refused service exists:\n%s", out)
	}
	r.WantAnswers(rig.VIP4+":80", "ep2", "ep3", "ep1")
	r.Loxicmd(create+" --force", "90:5001")
	r.Loxicmd(create, "91:5001")
	r.Loxicmd("delete lb 31.31.31.1 --tcp=90,91")
}
