package lifecycle_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// TestCheckUpgrade checks that --check-upgrade reports, while a daemon runs, whether another one
// can take over its connections. If not, a start fails, changes nothing, and lists the services
// that would lose connections. With --end-connections, it starts.
//
// P4
func TestCheckUpgrade(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	rig.ServeEcho(r)
	r.Loxicmd("create lb %s --tcp=7:7 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	c := rig.NewClients(r)
	c.Hold(rig.Join(rig.VIP4, 7), heldConnections)
	check := []string{rig.Program("loxilb"), "--pin-path", netnstest.PinPath(r.Dir()), "--check-upgrade"}
	before := pinnedIDs(t, r)
	out, err := r.LB.Run(check...)
	if err != nil || !strings.Contains(out, "can take over") {
		t.Errorf("while the same version runs: got %v, %s", err, out)
	}

	layouts, err := ebpf.LoadPinnedMap(filepath.Join(netnstest.PinPath(r.Dir()), "layouts"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer layouts.Close()
	name := make([]byte, layouts.KeySize())
	copy(name, "links")
	if err := layouts.Update(name, make([]byte, layouts.ValueSize()), ebpf.UpdateExist); err != nil {
		t.Fatal(err)
	}
	const want = "keys or values of links were laid out differently by the build that made them; --end-connections starts without them: 10 tracked " +
		"connections end, of 20.20.20.1:7/tcp (10), all counters begin at 0"
	if out, err := r.LB.Run(check...); err == nil || !strings.Contains(out, want) {
		t.Errorf("while another version runs: got %v, %s", err, out)
	}
	r.Stop()
	if err := r.Start(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a start after another version: %v", err)
	}
	c.AwaitAnswers()
	if after := pinnedIDs(t, r); len(after) != len(before) || after["connections"] != before["connections"] {
		t.Errorf("pins before %v, after %v", before, after)
	}
	if err := c.Finish(); err != nil {
		t.Error(err)
	}
	r.SetArgs("--end-connections")
	r.Restart()
	if err := rig.Exchange(r.Dial(rig.Join(rig.VIP4, 7)), "x"); err != nil {
		t.Error(err)
	}
}
