package checks_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// exitCode returns the exit code of a command.
func exitCode(t testing.TB, err error) int {
	t.Helper()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return failed.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0
}

// damage overwrites the first row of a pinned map.
func damage(t testing.TB, r *rig.Rig, name string) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(netnstest.PinPath(r.Dir()), "maps", name), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var key, row []byte
	it := m.Iterate()
	if !it.Next(&key, &row) {
		t.Fatalf("%s has no row: %v", name, it.Err())
	}
	row[0] ^= 0xff
	if err := m.Put(key, row); err != nil {
		t.Fatal(err)
	}
}

// TestVerify checks that verify finds damaged map rows, reports each in one sentence, and repairs
// them. It reports no correct row while services, rules and endpoints change.
//
// P59 verify finds and repairs each row that differs from the configuration, and reports no correct
// row while the configuration changes
func TestVerify(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeNames()
	for port := range 20 {
		r.Loxicmd("create lb %s --tcp=%d:5001 --endpoints=%s --select=hash --inatimeout=77 --monitor", rig.VIP4, 80+port, rig.Endpoints4(1, 2, 3))
	}
	r.Loxicmd("create firewall --firewallRule=sourceIP:9.9.9.0/24,preference:10 --drop")
	if _, err := r.Ask(rig.Join(rig.VIP4, 80)); err != nil {
		t.Fatal(err)
	}
	verify := func(want int, args ...string) string {
		t.Helper()
		out, err := r.Command(append([]string{"verify"}, args...)...)
		if code := exitCode(t, err); code != want {
			t.Errorf("verify %v exits with %d, want %d: %s", args, code, want, out)
		}
		return out
	}
	verify(0, "--all-connections", "--tables")
	for _, name := range []string{"services", "vips", "idle_timeouts", "links"} {
		damage(t, r, name)
		if out := verify(1); !strings.Contains(out, name+": ") || !strings.Contains(out, "fix: loxicmd verify --repair") {
			t.Errorf("verify does not report that %s is damaged: %s", name, out)
		}
		if out := verify(0, "--repair"); !strings.Contains(out, "repaired") {
			t.Errorf("verify does not repair %s: %s", name, out)
		}
	}
	verify(0)
	stop, churning := make(chan struct{}), sync.WaitGroup{}
	churning.Go(func() { changeServices(r, stop) })
	churning.Go(func() { alternateHostState(r, stop) })
	for began := time.Now(); time.Since(began) < 6*time.Second; {
		verify(0)
	}
	close(stop)
	churning.Wait()
	verify(0, "--all-connections")
}

// changeServices creates and deletes services and rules, and changes weights, until stop is closed.
func changeServices(r *rig.Rig, stop <-chan struct{}) {
	rng := rand.New(rand.NewPCG(1, 2))
	for {
		select {
		case <-stop:
			return
		default:
		}
		port := 200 + rng.IntN(10)
		for _, line := range []string{
			fmt.Sprintf("create lb %s --tcp=%d:5001 --endpoints=%s --slow-start=1s", rig.VIP4, port, rig.Endpoints4(1+rng.IntN(5))),
			fmt.Sprintf("create lb %s --tcp=80:5001 --endpoints=%s --select=hash", rig.VIP4, rig.Endpoints4(1+rng.IntN(5), rng.IntN(2))),
			fmt.Sprintf("create firewall --firewallRule=sourceIP:9.9.%d.0/24,preference:10 --drop", port),
			fmt.Sprintf("delete firewall --firewallRule=sourceIP:9.9.%d.0/24,preference:10", port),
			fmt.Sprintf("delete lb %s --tcp=%d", rig.VIP4, 200+rng.IntN(10)),
		} {
			_, _ = r.Command(strings.Fields(line)...)
		}
	}
}

// alternateHostState reports an endpoint as down and up, as an agent does, until stop is closed.
func alternateHostState(r *rig.Rig, stop <-chan struct{}) {
	client := r.LB.HTTPClient(rig.Patience)
	for state := "red"; ; {
		select {
		case <-stop:
			return
		default:
		}
		resp, err := client.Post("http://127.0.0.1:11111/netlox/v1/config/endpointhoststate", "application/json",
			strings.NewReader(`{"hostName":"31.31.31.1","epPort":5001,"epProto":"tcp","state":"`+state+`"}`))
		if err == nil {
			_ = resp.Body.Close()
		}
		if state == "red" {
			state = "green"
		} else {
			state = "red"
		}
	}
}
