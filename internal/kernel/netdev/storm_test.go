package netdev

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/event"
)

// stormRoutes is the number of stable routes, and stormSeconds how long others flap.
const stormRoutes, stormSeconds = 20000, 3

// TestRouteStorm checks that routes that flap 100 or 1,000 times a second give a few events,
// however many others there are, and that the default route among them is always known.
func TestRouteStorm(t *testing.T) {
	t.Parallel()
	for _, rate := range []int{1000, 100} { // at 100 a second, each change arrives alone
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			t.Parallel()
			storm(t, rate)
		})
	}
}

// storm makes routes flap at a rate per second.
func storm(t *testing.T, rate int) {
	t.Helper()
	a, _ := pair(t)
	var lines strings.Builder
	for i := range stormRoutes {
		fmt.Fprintf(&lines, "route add 100.%d.%d.%d/32 via 10.1.0.2\n", i>>16, i>>8&255, i&255)
	}
	fmt.Fprintf(&lines, "route add default via 10.1.0.2\n")
	file := filepath.Join(t.TempDir(), "routes")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, a, "ip", "-batch", file)
	n, r := runHost(t, a)
	eventually(t, func() error {
		if list, known := n.DefaultRoutes(); !known || len(list) != 1 {
			return fmt.Errorf("default routes: %v, known %v", list, known)
		}
		return nil
	})

	flapping := exec.Command("ip", "-force", "-batch", "-")
	feed, err := flapping.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Do(flapping.Start); err != nil {
		t.Fatal(err)
	}
	messages, _ := r.routeEvents()
	r.mu.Lock()
	before := len(r.all)
	r.mu.Unlock()
	used := cpu(t)
	start := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	sent := 0
	for time.Since(start) < stormSeconds*time.Second {
		<-tick.C
		var some strings.Builder
		for ; sent < int(time.Since(start).Seconds()*float64(rate)); sent++ {
			fmt.Fprintf(&some, "route %s 99.0.0.%d/32 via 10.1.0.2\n", []string{"add", "del"}[sent&1], sent>>1&127)
		}
		if _, err := io.WriteString(feed, some.String()); err != nil {
			t.Fatal(err)
		}
	}
	used = cpu(t) - used
	took := time.Since(start)
	_ = feed.Close()
	if err := flapping.Wait(); err != nil {
		t.Logf("ip: %v", err)
	}
	eventually(t, func() error {
		if m, _ := r.routeEvents(); m-messages < sent {
			return fmt.Errorf("%d of %d changes are known", m-messages, sent)
		}
		return nil
	})
	events := 0
	for _, e := range r.all[before:] {
		if _, ok := e.(event.Routes); ok {
			events++
		}
	}
	t.Logf("%d changes in %v: %d events, %.1f %% of a core", sent, took, events, 100*used.Seconds()/took.Seconds())
	if most := 12 + 6*stormSeconds; events > most {
		t.Errorf("%d events in %d s, want at most %d", events, stormSeconds, most)
	}
	if list, known := n.DefaultRoutes(); !known || len(list) != 1 {
		t.Errorf("default routes after the storm: %v, known %v", list, known)
	}
}

// cpu returns the CPU time that this process has used.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
