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
	shortHang = 8 * time.Second  // longer than some polls of the controller
	roleLease = 30 * time.Second // of a MASTER, as the controller sets it
	// maxSilence is how long no node may answer for the VIPs of a daemon that hangs (ADR 122), with
	// 2 s for a busy machine.
	maxSilence = 6*time.Second + 2*time.Second
)

// TestHang suspends the daemon of the MASTER under load, for a short time and for longer than its
// lease. The short time costs no request, and no VIP moves. During the long one, no node answers
// for the VIPs for some seconds, and then the other node does. Two nodes never answer, not even
// when the daemon resumes.
func TestHang(t *testing.T) {
	t.Parallel()
	c := cluster(t, "bridge")
	install(t, c)
	f := newShop(t, c)
	for _, tc := range []struct {
		what      string
		moves     bool // it hangs until the VIPs have moved
		maxFailed int
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
		await.True(t, patience, "a node answers", func() bool { return observer.Count() > 0 })
		load := startLoad(t.Context(), c, f.outside, f.address())
		began := time.Now()
		signal(t, hanging.Run, "STOP")
		if tc.moves {
			await.True(t, patience, "another node is MASTER", func() bool { return len(f.masters(hanging)) == 1 })
		} else {
			time.Sleep(shortHang)
		}
		await.NoError(t, patience, func() error { return allAnswered(t.Context(), f.outside, f.address()) })
		signal(t, hanging.Run, "CONT")
		f.oneMaster()
		load.check(t, tc.what, tc.maxFailed)
		view := observer.End(began)
		t.Logf("%s: %+v", tc.what, view)
		if moved := view.LastMAC != mac.String(); moved != tc.moves {
			t.Errorf("%s: the VIPs have moved: %v", tc.what, moved)
		}
		if view.Overlap > 0 {
			t.Errorf("%s: two nodes answered for %v", tc.what, view.Overlap)
		}
		if tc.moves && (view.Silence > maxSilence || view.FailoverTime < roleLease) {
			t.Errorf("%s: no node answered for %v, and another one after %v", tc.what, view.Silence, view.FailoverTime)
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
