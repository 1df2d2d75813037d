package network_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// TestFullTable checks that configured routes, and lists of routes for many users, cost little on a
// router with a million routes, a hundred of which change per second.
func TestFullTable(t *testing.T) {
	rig.Long(t)
	const (
		routes  = 1_000_000
		viewers = 6
		storm   = 15 * time.Second
	)
	r := rig.New(t, rig.Options{Before: func(t testing.TB, s *netnstest.Standard) { fillTable(t, s.LB, routes) }})
	r.Loxicmd("create route 10.8.0.0/16 31.31.31.1")
	r.Loxicmd("create route 0.0.0.0/0 31.31.31.1")
	r.Loxicmd("create route 79.0.0.0/9 31.31.31.1") // contains smaller networks only in its first half
	rest := func() (memory int, cpu time.Duration) {
		time.Sleep(5 * time.Second) // measures the idle state
		before := processorTime(t, r.Pid())
		time.Sleep(5 * time.Second)
		return resident(t, r, "VmRSS"), processorTime(t, r.Pid()) - before
	}
	idle, cpu := rest()
	t.Logf("with %d routes at rest: %d MB, %v of CPU in 5 s", routes, idle>>10, cpu)

	before, start := processorTime(t, r.Pid()), time.Now()
	changed := changeRoutes(t, r.LB, storm)
	took, used := time.Since(start), processorTime(t, r.Pid())-before
	share := float64(used) / float64(took)
	t.Logf("%d changes in %v: %.1f %% of a core, %d MB more", changed, took.Round(time.Second), 100*share, (resident(t, r, "VmRSS")-idle)>>10)
	if share > 0.05 {
		t.Errorf("%v of CPU in %v is more than 5 %%", used, took)
	}
	if more := resident(t, r, "VmHWM") - idle; more > 50<<10 {
		t.Errorf("the changes take %d MB", more>>10)
	}

	start, before = time.Now(), processorTime(t, r.Pid())
	for i := range 20 { // adding or removing an address compares all configured routes
		rig.MustRun(t, r.LB, "ip", "addr", []string{"add", "del"}[i&1], "10.77.0.1/24", "dev", "ep3")
		time.Sleep(200 * time.Millisecond)
	}
	took, used = time.Since(start), processorTime(t, r.Pid())-before
	t.Logf("20 changes of addresses in %v: %.1f %% of a core", took.Round(time.Second), 100*float64(used)/float64(took))
	if used > took/10 {
		t.Errorf("changes of addresses take %v of CPU in %v", used, took)
	}
	file := filepath.Join(t.TempDir(), "route.yaml")
	text := "kind: Route\napiVersion: netlox/v1\nspec: {destinationIPNet: 10.9.0.0/16, gateway: 31.31.31.1}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Loxicmd("apply -f %s", file)

	start, before = time.Now(), processorTime(t, r.Pid())
	bytes := make(chan int64, viewers)
	for range viewers {
		go func() { bytes <- listRoutes(t, r) }()
	}
	for range viewers {
		if n := <-bytes; n < routes*50 {
			t.Errorf("a list of routes has %d bytes", n)
		}
	}
	most := resident(t, r, "VmHWM")
	t.Logf("%d lists: %v, %v of CPU, %d MB more at most", viewers, time.Since(start), processorTime(t, r.Pid())-before, (most-idle)>>10)
	if most-idle > 50<<10 {
		t.Errorf("lists of routes take %d MB", (most-idle)>>10)
	}
	start = time.Now()
	if out := r.Loxicmd("get route --limit=1000 --no-headers"); strings.Count(out, "\n") < 1000 {
		t.Errorf("a page has %d lines", strings.Count(out, "\n"))
	}
	t.Logf("a page of 1,000: %v", time.Since(start).Round(time.Millisecond))
	r.Loxicmd("delete route 10.8.0.0/16")
	r.Loxicmd("delete route 64.0.5.0/24") // learned by BGP
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if out, _ := r.LB.Run("ip", "route", "show", "10.8.0.0/16"); out != "" {
			return fmt.Errorf("the kernel still has the route: %s", out)
		}
		return nil
	})
	if more := resident(t, r, "VmHWM") - idle; more > 50<<10 {
		t.Errorf("deleting a route takes %d MB", more>>10)
	}
}

// fillTable adds n routes to a host, like those of a BGP daemon.
func fillTable(t testing.TB, h *netnstest.Host, n int) {
	t.Helper()
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "route add %d.%d.%d.0/24 via 31.31.31.%d proto bgp\n", 64+i>>16, i>>8&255, i&255, 1+i&1)
	}
	file := filepath.Join(t.TempDir(), "routes")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	rig.MustRun(t, h, "ip", "-batch", file)
	t.Logf("%d routes added in %v", n, time.Since(start).Round(time.Millisecond))
}

// changeRoutes changes a hundred routes a second.
func changeRoutes(t *testing.T, h *netnstest.Host, d time.Duration) (n int) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); {
		<-tick.C
		var lines strings.Builder
		for range 10 {
			fmt.Fprintf(&lines, "route replace 64.%d.%d.0/24 via 31.31.31.%d proto bgp\n", n/2>>8&255, n/2&255, 1+n&1)
			n++
		}
		file := filepath.Join(t.TempDir(), "changes")
		if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		rig.MustRun(t, h, "ip", "-batch", file)
	}
	return n
}

// listRoutes lists all routes, and returns the number of bytes.
func listRoutes(t *testing.T, r *rig.Rig) int64 {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return r.LB.DialContext(ctx, network, address)
	}}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:11111/netlox/v1/config/route/all", nil)
	if err != nil {
		t.Error(err)
		return 0
	}
	res, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	if err != nil {
		t.Error(err)
	}
	return n
}

// resident returns a line of the daemon's /proc/PID/status, in KiB.
func resident(t testing.TB, r *rig.Rig, field string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), field+":")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(line), " kB"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// processorTime returns the CPU time that a process has used.
func processorTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, err := strconv.Atoi(f[11])
	if err != nil {
		t.Fatal(err)
	}
	system, err := strconv.Atoi(f[12])
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}
