package announce

import (
	"flag"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var manyVIPs = flag.Int("vips", 500, "VIPs that TestMany announces; bench/results/routes.txt has more")

// TestMany measures how soon a new MASTER has announced all of its VIPs, how many frames leave per
// second, and what it costs.
func TestMany(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{"IPv4": "10.2.1.0", "IPv6": "2001:db8:1::1:0"} {
		l := newLab(t, delays(3)...)
		if _, err := l.lb.Run("ip", "address", "add", "10.2.0.1/16", "dev", "eth0"); err != nil {
			t.Fatal(err)
		}
		list, missing := make([]netip.Addr, *manyVIPs), map[string]bool{}
		list[0] = netip.MustParseAddr(first)
		for i := range list {
			if i > 0 {
				list[i] = list[i-1].Next()
			}
			missing[list[i].String()] = true
		}
		before, began := cpuTime(t), time.Now()
		if failed := l.announce.Set(t.Context(), list); failed != nil {
			t.Fatal(failed)
		}
		owned := time.Since(began)
		var sent time.Time // the first frame
		timeout := time.After(time.Minute)
		for len(missing) > 0 {
			select {
			case f := <-l.frames:
				if sent.IsZero() {
					sent = time.Now()
				}
				vip, _, _ := strings.Cut(f, " ")
				delete(missing, vip)
			case <-timeout:
				t.Fatalf("%s: %d of %d VIPs were never announced", name, len(missing), len(list))
			}
		}
		rate := float64(len(list)) / time.Since(sent).Seconds()
		t.Logf("%s: %d VIPs are owned after %v, and announced %v after the first; %.0f frames/s; %v of CPU with the receiver", name, len(list),
			owned.Round(time.Millisecond), time.Since(sent).Round(time.Millisecond), rate, (cpuTime(t) - before).Round(time.Millisecond))
		if bound := float64(burst) / pause.Seconds(); rate > 1.5*bound {
			t.Errorf("%s: %.0f frames/s, more than %.0f", name, rate, bound)
		}
	}
}

// cpuTime returns what the process has used.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
