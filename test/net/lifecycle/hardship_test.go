package lifecycle_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// hardship returns a victim whose clients must not notice what happens to the daemon.
func hardship(t *testing.T) *victim {
	v := newCrowdedVictim(t, "auto")
	return v
}

// wantSaid waits until the daemon's log contains words.
func (v *victim) wantSaid(words string) {
	v.T.Helper()
	labtest.Eventually(v.T, rig.Patience, func(context.Context) error {
		if !strings.Contains(v.Log(), words) {
			return fmt.Errorf("the log does not say %q", words)
		}
		return nil
	})
}

// wantWell waits until nothing fails any more, then restarts the daemon. What was confirmed must be
// there, and clients must have noticed nothing.
func (v *victim) wantWell(confirmed ...string) {
	v.T.Helper()
	check := func(context.Context) error {
		out, err := v.Command("get", "status", "--failed")
		if err == nil && strings.Contains(out, "failed") {
			err = errors.New(out)
		}
		for _, address := range confirmed {
			if _, asked := v.Ask(address); asked != nil {
				err = errors.Join(err, fmt.Errorf("service %s: %w", address, asked))
			}
		}
		return err
	}
	labtest.Eventually(v.T, 2*rig.Patience, check)
	v.Kill()
	v.Restart()
	labtest.Eventually(v.T, rig.Patience, check)
	v.wantCounts()
	if err := v.crowd.Finish(); err != nil {
		v.T.Error(err)
	}
}

// confirm tries to create large services, and returns those that were confirmed, and the error of
// the others.
func (v *victim) confirm(first, n int) (confirmed []string, refused string) {
	sources := "0.0.0.0/0"
	for i := range 100 {
		sources += fmt.Sprintf(",100.100.%d.0/24", i)
	}
	for port := first; port < first+n; port++ {
		out, err := v.Command("--timeout", "2", "create", "lb", "20.20.20.9", fmt.Sprintf("--tcp=%d:5001", port), "--endpoints="+rig.Endpoints4(), "--sources="+sources)
		if err == nil {
			confirmed = append(confirmed, rig.Join("20.20.20.9", port))
		} else {
			refused = out + err.Error()
		}
	}
	return confirmed, refused
}

// TestNoDescriptors checks that a daemon without free descriptors reports it, recovers by itself
// once it has some, and keeps what it has confirmed.
//
// P40 Exhausted descriptors, a full or read-only disk, no memory, a halted daemon and lost kernel
// events cost no connection and no confirmed change; the daemon reports the problem and recovers by
// itself
func TestNoDescriptors(t *testing.T) {
	t.Parallel()
	v := hardship(t)
	before, _ := v.confirm(100, 2)
	var was unix.Rlimit
	if err := unix.Prlimit(v.Pid(), unix.RLIMIT_NOFILE, nil, &was); err != nil {
		t.Fatal(err)
	}
	limit := unix.Rlimit{Cur: 3, Max: was.Max} // fewer than are open
	if err := unix.Prlimit(v.Pid(), unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	during, refused := v.confirm(200, 3)
	v.wantSaid("too many open files")
	v.crowd.AwaitAnswers()
	t.Logf("of 3 services %d were confirmed without descriptors; the others: %s", len(during), refused)
	if err := unix.Prlimit(v.Pid(), unix.RLIMIT_NOFILE, &was, nil); err != nil {
		t.Fatal(err)
	}
	after, refused := v.confirm(300, 2)
	if len(after) != 2 {
		t.Errorf("after it: %s", refused)
	}
	v.wantWell(append(append(before, during...), after...)...)
}

// TestFullDisk checks that changes that the disk cannot hold are refused and change nothing, and
// succeed once there is room, except for roles, on which other nodes count: these hold, and are
// stored later. A start needs no write.
//
// P40
func TestFullDisk(t *testing.T) {
	t.Parallel()
	v := hardship(t)
	v.Stop()
	state := filepath.Join(v.Dir(), "state")
	saved := t.TempDir()
	for _, command := range [][]string{
		{"cp", "-a", state + "/.", saved}, {"mount", "-t", "tmpfs", "-o", "size=256k", "loxilb-test", state}, {"cp", "-a", saved + "/.", state},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatal(string(out), err)
		}
	}
	v.Lab.Cleanup(func() { _ = unix.Unmount(state, unix.MNT_DETACH) })
	v.Restart()
	before, _ := v.confirm(100, 2)
	filler := filepath.Join(state, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v, want the error syscall.ENOSPC", err)
	}
	during, refused := v.confirm(200, 5)
	if len(during) == 5 || !strings.Contains(refused, "no space left on device") {
		t.Errorf("%d of 5 services were confirmed on a full disk: %s", len(during), refused)
	}
	v.Loxicmd("set hastate BACKUP --instance=blue") // roles change all the same
	if out := v.Loxicmd("get hastate"); !strings.Contains(out, "BACKUP") {
		t.Errorf("on a full disk the roles are\n%s", out)
	}
	if out := v.Loxicmd("get status --failed"); !strings.Contains(out, "no space left on device") {
		t.Errorf("a role that is not stored is not reported:\n%s", out)
	}
	v.crowd.AwaitAnswers()
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	after, refused := v.confirm(300, 2)
	if len(after) != 2 {
		t.Errorf("once there is room: %s", refused)
	}
	v.Stop()
	if err := unix.Mount("", state, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	v.Restart()
	if _, refused := v.confirm(400, 1); !strings.Contains(refused, "read-only file system") {
		t.Errorf("a change on a disk that can't be written: %s", refused)
	}
	v.crowd.AwaitAnswers()
	if err := unix.Mount("", state, "", unix.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	later, refused := v.confirm(400, 2)
	if len(later) != 2 {
		t.Errorf("once it can be written: %s", refused)
	}
	after = append(after, later...)
	v.wantWell(append(append(before, during...), after...)...)
}

// TestNoMemory checks that clients notice nothing when the kernel kills a daemon that exceeds its
// memory limit, and that the next start has everything that was confirmed.
//
// P40
func TestNoMemory(t *testing.T) {
	t.Parallel()
	v := hardship(t)
	before, _ := v.confirm(100, 2)
	group := memoryGroup(t, v.Dir())
	group.add(t, v.Pid())
	group.limit(t, "33554432")
	var during []string
	for port := 200; port < 220 && running(v.Process); port++ {
		if v.createLarge(port) == nil {
			during = append(during, rig.Join("20.20.20.8", port))
		}
	}
	if running(v.Process) {
		v.Kill()
		t.Fatal("32 MiB are enough for", during)
	}
	v.crowd.AwaitAnswers()
	t.Logf("confirmed before the end: %v", during)
	v.Restart()
	v.wantWell(append(before, during...)...)
}

// createLarge creates a service with 50,000 sources.
func (v *victim) createLarge(port int) error {
	var sources strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&sources, `,{"prefix":"10.%d.%d.0/28"}`, i>>8, i&255)
	}
	body := fmt.Sprintf(`{"serviceArguments":{"externalIP":"20.20.20.8","port":%d,"protocol":"tcp"},"endpoints":[{"endpointIP":"31.31.31.1","targetPort":5001,"weight":1}],
		"allowedSources":[{"prefix":"0.0.0.0/0"}%s]}`, port, &sources)
	resp, err := v.LB.HTTPClient(rig.Patience).Post("http://127.0.0.1:11111/netlox/v1/config/loadbalancer", "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: got %s, want code 200", resp.Status, text)
	}
	return nil
}

// running reports whether the process runs.
func running(p *netnstest.Process) bool {
	select {
	case <-p.Done():
		return false
	default:
		return true
	}
}

// group is a memory cgroup.
type group struct{ path, max string }

// memoryGroup creates a memory cgroup, of the machine's version. It is mounted for the test alone.
func memoryGroup(t *testing.T, dir string) group {
	t.Helper()
	root, limit := t.TempDir(), "memory.limit_in_bytes"
	if err := unix.Mount("loxilb-test", root, "cgroup", 0, "memory"); err != nil {
		limit = "memory.max"
		if err := unix.Mount("loxilb-test", root, "cgroup2", 0, ""); err != nil {
			t.Skipf("cgroups are not to be had here: %v", err)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	g := group{filepath.Join(root, "loxilb-test-"+filepath.Base(dir)), limit}
	if err := os.Mkdir(g.path, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		labtest.Eventually(t, rig.Patience, func(context.Context) error { return os.Remove(g.path) })
	})
	if _, err := os.Stat(filepath.Join(g.path, g.max)); err != nil {
		t.Skipf("cgroups bound no memory here: %v", err)
	}
	return g
}

func (g group) add(t *testing.T, pid int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(g.path, "cgroup.procs"), fmt.Appendf(nil, "%d", pid), 0); err != nil {
		t.Fatal(err)
	}
}

func (g group) limit(t *testing.T, bytes string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(g.path, g.max), []byte(bytes), 0); err != nil {
		t.Fatal(err)
	}
}

// TestHalted checks that a daemon that was halted, like that of a suspended machine, continues
// where it was. No endpoint is reported as down, no idle connection ends early, and the daemon sees
// what changed meanwhile although its netlink sockets have overflowed.
//
// P40
func TestHalted(t *testing.T) {
	t.Parallel()
	v := hardship(t)
	v.Loxicmd("create lb 20.20.20.9 --tcp=80:5001 --endpoints=%s --monitor --probe-interval=100ms --probe-retries=1", rig.Endpoints4())
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if out := v.Loxicmd("get ep"); strings.Count(out, "up") < 3 {
			return errors.New(out)
		}
		return nil
	})
	v.Signal(syscall.SIGSTOP)
	const routes = 40_000
	var batch strings.Builder
	for i := range routes {
		fmt.Fprintf(&batch, "route add blackhole 10.%d.%d.%d/32\n", 100+i>>16, i>>8&255, i&255)
	}
	file := filepath.Join(t.TempDir(), "routes")
	if err := os.WriteFile(file, []byte(batch.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"ip", "-batch", file}, {"ip", "link", "add", "halted", "type", "veth", "peer", "name", "halted-peer"},
		{"ip", "link", "set", "halted", "up"}, {"ip", "link", "set", "halted-peer", "up"},
	} {
		if out, err := v.LB.Run(args...); err != nil {
			t.Fatal(out, err)
		}
	}
	v.crowd.AwaitAnswers()
	v.Signal(syscall.SIGCONT)
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		out, err := v.Command("get", "status", "--kind=interface")
		if err == nil && !strings.Contains(out, "| halted ") {
			err = errors.New("the interface that came meanwhile is not known")
		}
		return err
	})
	v.wantNeverDown(time.Now())
	v.wantWell(rig.Join("20.20.20.9", 80))
}

// wantNeverDown waits until all endpoints were probed after since, and checks that none has been
// down.
func (v *victim) wantNeverDown(since time.Time) {
	v.T.Helper()
	labtest.Eventually(v.T, rig.Patience, func(context.Context) error {
		var list struct {
			Attr []struct {
				HostName string
				Checked  time.Time
				History  []struct{ To, Evidence string }
			}
		}
		if err := json.Unmarshal([]byte(v.Loxicmd("get ep -o json")), &list); err != nil || len(list.Attr) == 0 {
			return fmt.Errorf("endpoints: %v, %w", list, err)
		}
		for _, e := range list.Attr {
			for _, change := range e.History {
				if change.To == "down" {
					v.T.Fatalf("%s was down: %s", e.HostName, change.Evidence)
				}
			}
			if !e.Checked.After(since) {
				return fmt.Errorf("%s was not probed yet", e.HostName)
			}
		}
		return nil
	})
}

// deafen removes the netlink sockets of a process from all their groups.
func deafen(t testing.TB, pid int) (sockets int) {
	t.Helper()
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(process) //nolint:errcheck // of a test
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		number, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.PidfdGetfd(process, number, 0)
		if err != nil {
			continue // closed meanwhile
		}
		if family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil && family == unix.AF_NETLINK {
			const groups = 36 // of rtnetlink
			for group := 1; group <= groups; group++ {
				_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_DROP_MEMBERSHIP, group) // most sockets are not in most groups
			}
			sockets++
		}
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	}
	return sockets
}

// TestDeaf checks that a daemon whose netlink sockets get no more messages notices within seconds,
// reads the network again, and attaches to new interfaces.
//
// P40
func TestDeaf(t *testing.T) {
	t.Parallel()
	v := hardship(t)
	if deafen(t, v.Pid()) == 0 {
		t.Fatal("the daemon has no netlink socket")
	}
	rig.MustRun(t, v.LB, "ip", "link", "add", "late0", "type", "veth", "peer", "name", "late1")
	rig.MustRun(t, v.LB, "ip", "link", "set", "late0", "up")
	v.wantSaid("reading the whole network state again")
	v.wantSaid("interface=late0")
	v.crowd.AwaitAnswers()
	rig.MustRun(t, v.LB, "ip", "link", "add", "later0", "type", "bridge")
	v.wantSaid("interface=later0")
	v.wantWell()
}
