package scenarios

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"loxilb/test/await"
	"loxilb/test/netnstest/labtest"
)

const (
	shortHang = 8 * time.Second  // some polls of the controller
	roleLease = 30 * time.Second // of a MASTER, as the controller sets it
	// nobody is for how long nobody may answer for the VIPs of a daemon that hangs: see ADR 122.
	// The rest is for a busy machine.
	nobody = 6*time.Second + 2*time.Second
)

// TestHang has the daemon of the MASTER hang under load, for a short time and for longer than its
// lease. The short time costs nothing, and no VIP moves. After the long one, nobody answers for the
// VIPs for some seconds, and then the other node does. Two nodes never answer, nor when the daemon
// continues.
func TestHang(t *testing.T) {
	t.Parallel()
	c := cluster(t, "bridge")
	install(t, c)
	f := shopUnderFailures(t, c)
	for _, tc := range []struct {
		what  string
		moves bool // it hangs until the VIPs have moved
		costs int
	}{
		{"short", false, 0},
		{"long", true, unlimited},
	} {
		f.oneMaster()
		hanging := f.master()
		mac, err := hanging.MAC("eth0")
		if err != nil {
			t.Fatal(err)
		}
		observer := labtest.Observe(t, c.LAN, netip.MustParseAddr("10.77.0.21"), netip.MustParseAddr(f.vip))
		await.True(t, patience, "somebody answers", func() bool { return observer.Count() > 0 })
		load := startLoad(t.Context(), c, f.outside, f.address())
		began := time.Now()
		signal(t, hanging.Run, "STOP")
		if tc.moves {
			await.True(t, patience, "another node is MASTER", func() bool { return len(f.masters(hanging)) == 1 })
		} else {
			time.Sleep(shortHang)
		}
		await.NoError(t, patience, func() error { return all(t.Context(), f.outside, f.address()) })
		signal(t, hanging.Run, "CONT")
		f.oneMaster()
		load.check(t, tc.what, tc.costs)
		view := observer.End(began)
		t.Logf("%s: %+v", tc.what, view)
		if moved := view.LastMAC != mac.String(); moved != tc.moves {
			t.Errorf("%s: the VIPs have moved: %v", tc.what, moved)
		}
		if view.Overlap > 0 {
			t.Errorf("%s: two nodes answered for %v", tc.what, view.Overlap)
		}
		if tc.moves && (view.Silence > nobody || view.FailoverTime < roleLease) {
			t.Errorf("%s: nobody answered for %v, and another node after %v", tc.what, view.Silence, view.FailoverTime)
		}
		f.change()
	}
}

// signal sends a signal to the daemon of a node.
func signal(t *testing.T, run func(...string) (string, error), name string) {
	t.Helper()
	if out, err := run("sh", "-c", fmt.Sprintf("kill -%s $(pidof loxilb)", name)); err != nil {
		t.Fatal(err, out)
	}
}
