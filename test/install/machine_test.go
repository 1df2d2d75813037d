package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// bootPatience is the time limit for booting a Debian, and for its shutdown.
const bootPatience = time.Minute

// powerOff is SIGRTMIN+4, which shuts systemd down (systemd(1)).
const powerOff = syscall.Signal(34 + 4)

// machine is a running Debian, with the network of a host.
type machine struct {
	t    testing.TB
	root string // directory of its files, while it runs
	init int    // its process 1, as seen from outside
}

// boot starts a Debian with a file system that is a layer over a debootstrap, which does not
// change.
func boot(t testing.TB, base string, host *netnstest.Host) *machine {
	t.Helper()
	m := &machine{t: t, root: filepath.Join(t.TempDir(), "root")}
	m.overlay(base)
	nspawn := exec.Command("systemd-nspawn", "--quiet", "--directory="+m.root, "--boot", "--register=no", "--keep-unit", "--console=pipe", "--machine="+host.Namespace,
		"--network-namespace-path="+host.Path(), "--capability=all", "--system-call-filter=bpf perf_event_open", "--bind=/sys/fs/bpf", "--bind-ro="+packages())
	// systemd of Debian 13 boots with cgroup v2 only; sysctls of the network are as writable as on
	// a real machine
	nspawn.Env = append(os.Environ(), "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1", "SYSTEMD_NSPAWN_API_VFS_WRITABLE=network")
	nspawn.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	var console bytes.Buffer
	nspawn.Stdout, nspawn.Stderr = &console, &console
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // Linux treats the end of this thread as that of the parent
		defer runtime.UnlockOSThread()
		started <- nspawn.Start()
		_ = nspawn.Wait()
		close(ended)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = nspawn.Process.Signal(powerOff)
		select {
		case <-ended:
		case <-time.After(bootPatience):
			_ = nspawn.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("console:\n%s", &console)
		}
	})
	labtest.Eventually(t, bootPatience, func(context.Context) error {
		// its first child only creates process 1
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", nspawn.Process.Pid, nspawn.Process.Pid))
		if m.init, _ = strconv.Atoi(strings.TrimSpace(string(children))); m.init == 0 {
			return errors.Join(errors.New("the machine has no process 1"), err)
		}
		// degraded: some unit that does not work in a container has failed
		if out, err := m.try("systemctl", "is-system-running"); err != nil && strings.TrimSpace(out) != "degraded" {
			return fmt.Errorf("the machine does not run: %s", out)
		}
		return nil
	})
	return m
}

// overlay mounts an empty layer over a debootstrap.
func (m *machine) overlay(base string) {
	m.t.Helper()
	layer, work := filepath.Join(filepath.Dir(m.root), "layer"), filepath.Join(filepath.Dir(m.root), "work")
	for _, dir := range []string{m.root, layer, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			m.t.Fatal(err)
		}
	}
	if err := unix.Mount("overlay", m.root, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", base, layer, work)); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = unix.Unmount(m.root, unix.MNT_DETACH) })
}

// try runs a program as root of the machine.
func (m *machine) try(args ...string) (string, error) {
	command := exec.Command("nsenter", append([]string{"--target", strconv.Itoa(m.init), "--all", "--"}, args...)...)
	command.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"}
	out, err := command.CombinedOutput()
	return string(out), err
}

// run runs a program that must succeed.
func (m *machine) run(args ...string) string {
	m.t.Helper()
	out, err := m.try(args...)
	if err != nil {
		m.t.Fatalf("%v: %v: %s", args, err, out)
	}
	return out
}

// loxicmd runs the command line, given as words separated by spaces.
func (m *machine) loxicmd(line string) string {
	m.t.Helper()
	return m.run(append([]string{"loxicmd"}, strings.Fields(line)...)...)
}

// property returns a property of the unit, as reported by systemd.
func (m *machine) property(name string) string {
	m.t.Helper()
	return strings.TrimSpace(m.run("systemctl", "show", "--property="+name, "--value", "loxilb"))
}

// has reports whether a file exists.
func (m *machine) has(path string) bool {
	_, err := m.try("test", "-e", path)
	return err == nil
}
