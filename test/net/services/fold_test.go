package services_test

import (
	"strings"
	"testing"

	"loxilb/test/net/rig"
)

// TestServiceAsEndpoint checks a service whose endpoint is another service, the inner one. It
// distributes this endpoint's share to the endpoints of the inner service, counts its own
// connections, and follows changes of the inner service. The daemon refuses loops.
func TestServiceAsEndpoint(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeNames()
	for _, f := range []struct{ outer, inner, ep1, ep2, ep3 string }{
		{"20.20.20.1", "20.20.20.2", "31.31.31.1", "32.32.32.1", "17.17.17.1"},
		{"2001:db8:20::1", "2001:db8:20::2", "[2001:db8:31::1]", "[2001:db8:32::1]", "[2001:db8:17::1]"},
	} {
		inner := rig.Bracket(f.inner)
		address := rig.Join(f.outer, 80)
		// No server listens at port 81: only the inner service has port 5001.
		r.Loxicmd("create lb %s --tcp=81:5001 --endpoints=%s:1,%s:1", f.inner, f.ep1, f.ep2)
		r.Loxicmd("create lb %s --tcp=80:81 --endpoints=%s:81:1,%s:5001:1", f.outer, inner, f.ep3)
		r.WantAnswers(address, "ep3", "ep1", "ep2", "ep3", "ep3", "ep1", "ep2", "ep3")
		r.WantAnswers(rig.Join(f.inner, 81), "ep1", "ep2")
		if got := r.Metric("endpoint_connections_total", "service="+address+"/tcp", "endpoint="+rig.Join(f.inner, 81)); got != 4 {
			t.Errorf("%s: %v connections are counted for the inner service, want 4", address, got)
		}
		if got := r.Metric("service_connections_total", "service="+rig.Join(f.inner, 81)+"/tcp"); got != 2 {
			t.Errorf("%s: the inner service counts %v connections, want its own 2", address, got)
		}
		if out, err := r.Command("create", "lb", f.inner, "--tcp=81:80", "--endpoints="+rig.Bracket(f.outer)+":1"); err == nil ||
			!strings.Contains(err.Error()+out, "lead back to the service itself") {
			t.Errorf("a loop: %s, %v", out, err)
		}
		r.Loxicmd("create lb %s --tcp=81:5001 --endpoints=%s:1", f.inner, f.ep2)
		r.WantAnswers(address, "ep2", "ep3", "ep2", "ep3")
		r.Stop()
		r.Restart()
		for range 2 { // the data path continues with the next endpoint
			if who, err := r.Ask(address); err != nil || strings.HasPrefix(who, "ep1") {
				t.Errorf("%s after a restart: %q, %v", address, who, err)
			}
		}
		r.Loxicmd("create lb %s --tcp=80:81 --endpoints=%s:81:1 --mode=onearm", f.outer, inner)
		if who, err := r.Ask(address); err != nil || !strings.HasPrefix(who, "ep2") || strings.Contains(who, "100.100.100.1") || strings.Contains(who, "2001:db8:100::1") {
			t.Errorf("%s in mode onearm: %q, %v", address, who, err)
		}
		r.Loxicmd("delete lb %s --tcp=81", f.inner)
		r.WantNoAnswer(address)
	}
}
