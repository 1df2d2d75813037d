package services_test

import (
	"strings"
	"testing"

	"loxilb/test/net/rig"
)

// TestNameOfSeveral checks that one command creates two services with a name, that another deletes
// both, and that a name without a service gives a warning.
func TestNameOfSeveral(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=80:5001,443:5001 --name=web --endpoints=%s", rig.VIP4, rig.Endpoints4())
	r.Loxicmd("create lb %s --tcp=81:5001 --name=web:2 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	r.WantAnswers(rig.VIP4+":80", "ep1", "ep2")
	r.WantAnswers(rig.VIP4+":443", "ep1", "ep2")
	if out := r.Loxicmd("get lb"); strings.Count(out, " web ") != 2 {
		t.Errorf("want two services with the name web:\n%s", out)
	}
	r.Loxicmd("delete lb --name=web")
	r.WantNoAnswer(rig.VIP4 + ":80")
	r.WantNoAnswer(rig.VIP4 + ":443")
	r.WantAnswers(rig.VIP4+":81", "ep1")
	if out, err := r.Command("delete", "lb", "--name=web"); err != nil || !strings.Contains(out, "Warning: no service named web") {
		t.Errorf("delete of a missing name: %v, %s", err, out)
	}
}
