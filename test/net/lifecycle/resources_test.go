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

// wantLogged waits until the daemon's log contains a text.
func (k *killRig) wantLogged(words string) {
	k.T.Helper()
	labtest.Eventually(k.T, rig.Patience, func(context.Context) error {
		if !strings.Contains(k.Log(), words) {
			return fmt.Errorf("the log does not contain %q", words)
		}
		return nil
	})
}

// wantRecovered waits until no object has failed, and restarts the daemon. The confirmed services
// must answer, and no client may have seen an error.
func (k *killRig) wantRecovered(confirmed ...string) {
	k.T.Helper()
	check := func(context.Context) error {
		out, err := k.Command("get", "status", "--failed")
		if err == nil && strings.Contains(out, "failed") {
			err = errors.New(out)
		}
		for _, address := range confirmed {
			if _, asked := k.Ask(address); asked != nil {
				err = errors.Join(err, fmt.Errorf("service %s: %w", address, asked))
			}
		}
		return err
	}
	labtest.Eventually(k.T, 2*rig.Patience, check)
	k.Kill()
	k.Restart()
	labtest.Eventually(k.T, rig.Patience, check)
	k.wantCounts()
	if err := k.clients.Finish(); err != nil {
		k.T.Error(err)
	}
}

// createServices tries to create services with many sources at the ports from first on. It returns
// the confirmed ones, and the last error.
func (k *killRig) createServices(first, n int) (confirmed []string, refused string) {
	sources := "0.0.0.0/0"
	for i := range 100 {
		sources += fmt.Sprintf(",100.100.%d.0/24", i)
	}
	for port := first; port < first+n; port++ {
		out, err := k.Command("--timeout", "2", "create", "lb", "20.20.20.9", fmt.Sprintf("--tcp=%d:5001", port), "--endpoints="+rig.Endpoints4(), "--sources="+sources)
		if err == nil {
			confirmed = append(confirmed, rig.Join("20.20.20.9", port))
		} else {
			refused = out + err.Error()
		}
	}
	return confirmed, refused
}

// TestNoDescriptors checks that a daemon without free file descriptors reports it, recovers when
// some are free again, and keeps confirmed services.
//
// P40 Exhausted descriptors, a full or read-only disk, no memory, a halted daemon and lost kernel
// events cost no connection and no confirmed change; the daemon reports the problem and recovers on
// its own
func TestNoDescriptors(t *testing.T) {
	t.Parallel()
	k := newKillRigWithLoad(t, "auto")
	before, _ := k.createServices(100, 2)
	var oldLimit unix.Rlimit
	if err := unix.Prlimit(k.Pid(), unix.RLIMIT_NOFILE, nil, &oldLimit); err != nil {
		t.Fatal(err)
	}
	limit := unix.Rlimit{Cur: 3, Max: oldLimit.Max} // fewer than are open
	if err := unix.Prlimit(k.Pid(), unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	during, refused := k.createServices(200, 3)
	k.wantLogged("too many open files")
	k.clients.AwaitAnswers()
	t.Logf("of 3 services %d were confirmed without descriptors; the others: %s", len(during), refused)
	if err := unix.Prlimit(k.Pid(), unix.RLIMIT_NOFILE, &oldLimit, nil); err != nil {
		t.Fatal(err)
	}
	after, refused := k.createServices(300, 2)
	if len(after) != 2 {
		t.Errorf("with free descriptors: %s", refused)
	}
	k.wantRecovered(append(append(before, during...), after...)...)
}

// TestFullDisk checks that a daemon refuses changes while the disk is full or read-only, and
// accepts them afterwards. Roles are an exception, since other nodes depend on them: they take
// effect, and are stored later. A start needs no write.
//
// P40
func TestFullDisk(t *testing.T) {
	t.Parallel()
	k := newKillRigWithLoad(t, "auto")
	k.Stop()
	state := filepath.Join(k.Dir(), "state")
	saved := t.TempDir()
	for _, command := range [][]string{
		{"cp", "-a", state + "/.", saved}, {"mount", "-t", "tmpfs", "-o", "size=256k", "loxilb-test", state}, {"cp", "-a", saved + "/.", state},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatal(string(out), err)
		}
	}
	k.Lab.Cleanup(func() { _ = unix.Unmount(state, unix.MNT_DETACH) })
	k.Restart()
	before, _ := k.createServices(100, 2)
	filler := filepath.Join(state, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v, want the error syscall.ENOSPC", err)
	}
	during, refused := k.createServices(200, 5)
	if len(during) == 5 || !strings.Contains(refused, "no space left on device") {
		t.Errorf("%d of 5 services were confirmed on a full disk: %s", len(during), refused)
	}
	k.Loxicmd("set hastate BACKUP --instance=blue")
	if out := k.Loxicmd("get hastate"); !strings.Contains(out, "BACKUP") {
		t.Errorf("on a full disk the roles are\n%s", out)
	}
	if out := k.Loxicmd("get status --failed"); !strings.Contains(out, "no space left on device") {
		t.Errorf("a role that is not stored is not reported:\n%s", out)
	}
	k.clients.AwaitAnswers()
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	after, refused := k.createServices(300, 2)
	if len(after) != 2 {
		t.Errorf("with free disk space: %s", refused)
	}
	k.Stop()
	if err := unix.Mount("", state, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	k.Restart()
	if _, refused := k.createServices(400, 1); !strings.Contains(refused, "read-only file system") {
		t.Errorf("a change on a read-only disk: got %s", refused)
	}
	k.clients.AwaitAnswers()
	if err := unix.Mount("", state, "", unix.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	later, refused := k.createServices(400, 2)
	if len(later) != 2 {
		t.Errorf("after the disk was read-only: %s", refused)
	}
	after = append(after, later...)
	k.wantRecovered(append(append(before, during...), after...)...)
}

// TestNoMemory checks that connections continue when the kernel kills a daemon that exceeds its
// memory limit, and that the next start has all confirmed services.
//
// P40
func TestNoMemory(t *testing.T) {
	t.Parallel()
	k := newKillRigWithLoad(t, "auto")
	before, _ := k.createServices(100, 2)
	group := newMemoryCgroup(t, k.Dir())
	group.add(t, k.Pid())
	group.limit(t, "33554432")
	var during []string
	for port := 200; port < 220 && isRunning(k.Process); port++ {
		if k.createLarge(port) == nil {
			during = append(during, rig.Join("20.20.20.8", port))
		}
	}
	if isRunning(k.Process) {
		k.Kill()
		t.Fatal("the daemon still runs with 32 MiB after creating", during)
	}
	k.clients.AwaitAnswers()
	t.Logf("confirmed before the end: %v", during)
	k.Restart()
	k.wantRecovered(append(before, during...)...)
}

// createLarge creates a service with 50,000 sources.
func (k *killRig) createLarge(port int) error {
	var sources strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&sources, `,{"prefix":"10.%d.%d.0/28"}`, i>>8, i&255)
	}
	body := fmt.Sprintf(`{"serviceArguments":{"externalIP":"20.20.20.8","port":%d,"protocol":"tcp"},"endpoints":[{"endpointIP":"31.31.31.1","targetPort":5001,"weight":1}],
		"allowedSources":[{"prefix":"0.0.0.0/0"}%s]}`, port, &sources)
	resp, err := k.LB.HTTPClient(rig.Patience).Post("http://127.0.0.1:11111/netlox/v1/config/loadbalancer", "application/json", strings.NewReader(body))
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

// isRunning reports whether the process has not ended.
func isRunning(p *netnstest.Process) bool {
	select {
	case <-p.Done():
		return false
	default:
		return true
	}
}

// memoryCgroup is a memory cgroup: its directory, and the name of the file with the limit.
type memoryCgroup struct{ path, max string }

// newMemoryCgroup creates a memory cgroup of version 1 or 2, as the machine has it. The test has a
// mount of its own.
func newMemoryCgroup(t *testing.T, dir string) memoryCgroup {
	t.Helper()
	root, limit := t.TempDir(), "memory.limit_in_bytes"
	if err := unix.Mount("loxilb-test", root, "cgroup", 0, "memory"); err != nil {
		limit = "memory.max"
		if err := unix.Mount("loxilb-test", root, "cgroup2", 0, ""); err != nil {
			t.Skipf("cgroups cannot be mounted: %v", err)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	g := memoryCgroup{filepath.Join(root, "loxilb-test-"+filepath.Base(dir)), limit}
	if err := os.Mkdir(g.path, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		labtest.Eventually(t, rig.Patience, func(context.Context) error { return os.Remove(g.path) })
	})
	if _, err := os.Stat(filepath.Join(g.path, g.max)); err != nil {
		t.Skipf("cgroups cannot limit memory: %v", err)
	}
	return g
}

func (g memoryCgroup) add(t *testing.T, pid int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(g.path, "cgroup.procs"), fmt.Appendf(nil, "%d", pid), 0); err != nil {
		t.Fatal(err)
	}
}

func (g memoryCgroup) limit(t *testing.T, bytes string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(g.path, g.max), []byte(bytes), 0); err != nil {
		t.Fatal(err)
	}
}

// TestHalted checks that a daemon continues after SIGSTOP and SIGCONT, as on a suspended machine.
// No endpoint is reported as down, no idle connection ends early, and the daemon detects network
// changes of that time although its netlink sockets have overflowed.
//
// P40
func TestHalted(t *testing.T) {
	t.Parallel()
	k := newKillRigWithLoad(t, "auto")
	k.Loxicmd("create lb 20.20.20.9 --tcp=80:5001 --endpoints=%s --monitor --probe-interval=100ms --probe-retries=1", rig.Endpoints4())
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if out := k.Loxicmd("get ep"); strings.Count(out, "up") < 3 {
			return errors.New(out)
		}
		return nil
	})
	k.Signal(syscall.SIGSTOP)
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
		if out, err := k.LB.Run(args...); err != nil {
			t.Fatal(out, err)
		}
	}
	k.clients.AwaitAnswers()
	k.Signal(syscall.SIGCONT)
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		out, err := k.Command("get", "status", "--kind=interface")
		if err == nil && !strings.Contains(out, "| halted ") {
			err = errors.New("the daemon does not know the interface that was added meanwhile")
		}
		return err
	})
	k.wantNeverDown(time.Now())
	k.wantRecovered(rig.Join("20.20.20.9", 80))
}

// wantNeverDown waits until all endpoints were probed after since, and checks that none was ever
// down.
func (k *killRig) wantNeverDown(since time.Time) {
	k.T.Helper()
	labtest.Eventually(k.T, rig.Patience, func(context.Context) error {
		var list struct {
			Attr []struct {
				HostName string
				Checked  time.Time
				History  []struct{ To, Evidence string }
			}
		}
		if err := json.Unmarshal([]byte(k.Loxicmd("get ep -o json")), &list); err != nil || len(list.Attr) == 0 {
			return fmt.Errorf("endpoints: %v, %w", list, err)
		}
		for _, e := range list.Attr {
			for _, change := range e.History {
				if change.To == "down" {
					k.T.Fatalf("%s was down: %s", e.HostName, change.Evidence)
				}
			}
			if !e.Checked.After(since) {
				return fmt.Errorf("%s was not probed yet", e.HostName)
			}
		}
		return nil
	})
}

// leaveNetlinkGroups removes the netlink sockets of a process from all their groups, so the process
// gets no more events.
func leaveNetlinkGroups(t testing.TB, pid int) (sockets int) {
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
				_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_DROP_MEMBERSHIP, group) // fails for groups that the socket is not in
			}
			sockets++
		}
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	}
	return sockets
}

// TestNoNetlinkEvents checks that a daemon whose netlink sockets get no more events detects this
// within seconds, reads the network again, and attaches programs to new interfaces.
//
// P40
func TestNoNetlinkEvents(t *testing.T) {
	t.Parallel()
	k := newKillRigWithLoad(t, "auto")
	if leaveNetlinkGroups(t, k.Pid()) == 0 {
		t.Fatal("the daemon has no netlink socket")
	}
	rig.MustRun(t, k.LB, "ip", "link", "add", "late0", "type", "veth", "peer", "name", "late1")
	rig.MustRun(t, k.LB, "ip", "link", "set", "late0", "up")
	k.wantLogged("reading the whole network state again")
	k.wantLogged("interface=late0")
	k.clients.AwaitAnswers()
	rig.MustRun(t, k.LB, "ip", "link", "add", "later0", "type", "bridge")
	k.wantLogged("interface=later0")
	k.wantRecovered()
}
