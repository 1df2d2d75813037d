package checks_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	v1 "loxilb/api/v1"
	"loxilb/test/net/rig"
)

// machineChecks returns the ids of checks whose results depend on the machine that runs the test.
func machineChecks() []string {
	return []string{
		"kernel", "jit", "bpffs", "program-statistics", "neighbour-table", "clock", "cgroup", "memory", "descriptors", "disk",
		"queues", "interrupts", "governor", "next-hops",
	}
}

// findings returns the ids of doctor's findings in the network of a rig.
func findings(t *testing.T, r *rig.Rig) (ids []string) {
	t.Helper()
	out, err := r.Command("doctor", "-o", "json")
	if code := exitCode(t, err); code > 1 {
		t.Fatalf("doctor exits with %d: %s", code, out)
	}
	var d v1.Diagnosis
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, f := range d.Findings {
		if !slices.Contains(machineChecks(), f.Check) {
			ids = append(ids, f.Id)
		}
	}
	slices.Sort(ids)
	return ids
}

// TestDoctor checks that doctor reports no fault in a working network, and each fault with its
// remedy in others. With --fix, it makes only safe repairs, after a confirmation.
//
// P63 doctor reports nothing in a working network, and changes nothing without --fix
func TestDoctor(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	if got := findings(t, r); got != nil {
		t.Errorf("findings in a working network: %v", got)
	}
	rig.MustRun(t, r.LB, "sysctl", "-qw", "net.ipv4.conf.ep1.rp_filter=1")
	rig.MustRun(t, r.LB, "ip", "link", "set", "ep2", "mtu", "1400")
	rig.MustRun(t, r.LB, "ip", "addr", "add", rig.VIP4+"/32", "dev", "ep3")
	rig.MustRun(t, r.LB, "ip", "addr", "add", rig.VIP4+"/32", "dev", "client")
	want := []string{"mtu:ep2", "reverse-path:ep1", "vips:" + rig.VIP4}
	if got := findings(t, r); !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
	out, _ := r.Command("doctor")
	for _, words := range []string{"possible the reverse path filter of ep1 is strict", "fix: sysctl -w net.ipv4.conf.ep1.rp_filter=2", "why: ", "--mss=1340"} {
		if !strings.Contains(out, words) {
			t.Errorf("%q is not in: %s", words, out)
		}
	}
	if out, err := r.Command("doctor", "--yes"); err == nil || exitCode(t, err) != 2 {
		t.Errorf("--yes alone: %s", out)
	}
	if got := findings(t, r); !slices.Equal(got, want) {
		t.Errorf("without a repair, the findings are %v, want %v", got, want)
	}
	resp, err := r.LB.HTTPClient(rig.Patience).Post("http://127.0.0.1:11111/netlox/v1/doctor?finding=reverse-path:ep1", "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got := findings(t, r); resp.StatusCode != 200 || !slices.Equal(got, []string{"mtu:ep2", "vips:" + rig.VIP4}) {
		t.Errorf("%s; remaining findings: %v", resp.Status, got)
	}
}
