package net_test

import (
	"strings"
	"testing"
)

// TestNameOfSeveral: one command makes two services of a name, another deletes both, and a name that none has is
// warned of.
func TestNameOfSeveral(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.serveNames()
	r.loxicmd("create lb %s --tcp=80:5001,443:5001 --name=web --endpoints=%s", vip4, endpoints4())
	r.loxicmd("create lb %s --tcp=81:5001 --name=web:2 --endpoints=%s", vip4, endpoints4())
	r.wantAnswers(vip4+":80", "ep1", "ep2")
	r.wantAnswers(vip4+":443", "ep1", "ep2")
	if out := r.loxicmd("get lb"); strings.Count(out, " web ") != 2 {
		t.Errorf("not two services called web:\n%s", out)
	}
	r.loxicmd("delete lb --name=web")
	r.wantNoAnswer(vip4 + ":80")
	r.wantNoAnswer(vip4 + ":443")
	r.wantAnswers(vip4+":81", "ep1")
	if out, err := r.Command("delete", "lb", "--name=web"); err != nil || !strings.Contains(out, "Warning: there is no service named web") {
		t.Errorf("deleting it again: %v, %s", err, out)
	}
}
