package pins

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// printRoot sets up the mounts of a case of TestRoot, and prints the result of Root, and the owner
// of that mount.
func printRoot() {
	machine := os.Getenv("LOXILB_TEST_MACHINE") // the machine's BPF file system, or a directory in its place
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	step := func(f func() error) {
		if err == nil {
			err = f()
		}
	}
	bound := -1 // the machine's, before /sys is unmounted
	step(func() (err error) {
		if machine == "" {
			return nil
		}
		bound, err = unix.OpenTree(unix.AT_FDCWD, machine, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		return err
	})
	for _, what := range strings.Fields(os.Getenv("LOXILB_TEST_ROOT")) {
		switch what {
		case "sysfs": // as `ip netns exec` mounts it
			step(func() error { return unix.Unmount("/sys", unix.MNT_DETACH) })
			step(func() error { return unix.Mount("sysfs", "/sys", "sysfs", 0, "") })
		case "bind":
			step(func() error {
				return unix.MoveMount(bound, "", unix.AT_FDCWD, usualBPFFS, unix.MOVE_MOUNT_F_EMPTY_PATH)
			})
		case "bpf":
			step(func() error { return unix.Mount("bpf", usualBPFFS, "bpf", 0, "") })
		case "proc":
			step(func() error { return unix.Mount("proc", "/proc", "proc", 0, "") })
		case "root": // its own root directory, with the machine's below it
			step(ownRoot)
		}
	}
	if err != nil {
		fmt.Println("set up:", err)
		return
	}
	if inner := os.Getenv("LOXILB_TEST_INNER"); inner != "" {
		out, err := process(syscall.CLONE_NEWNS, "LOXILB_TEST_PROCESS=root", "LOXILB_TEST_ROOT="+inner)
		fmt.Println(out, err, isBPFFS(usualBPFFS))
		return
	}
	root, err := Root()
	if err != nil {
		fmt.Println("Root:", err)
		return
	}
	if _, err := os.Stat(filepath.Join(root, os.Getenv("LOXILB_TEST_MARK"), "x")); err == nil {
		fmt.Println(root, "the machine's")
	} else {
		fmt.Println(root, "its own")
	}
}

// ownRoot creates a root directory like that of a container: only /proc, which is the machine's,
// and /sys.
func ownRoot() error {
	root, err := os.MkdirTemp("", "loxilb-root-")
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, ""); err != nil {
		return err
	}
	for _, dir := range []string{"proc", "sys", "old"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("/proc", filepath.Join(root, "proc"), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if err := unix.Mount("sysfs", filepath.Join(root, "sys"), "sysfs", 0, ""); err != nil {
		return err
	}
	if err := unix.PivotRoot(root, filepath.Join(root, "old")); err != nil {
		return err
	}
	return errors.Join(os.Chdir("/"), os.Remove(filepath.Join("/old", root)))
}

// TestRoot checks that pins go to the process's own BPF file system if that is permanent, and to
// the machine's from a mount namespace that is a view of it. No program is needed, and none is
// searched in PATH.
func TestRoot(t *testing.T) {
	t.Parallel()
	machine, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	mark := scratch(t)
	if err := os.Mkdir(filepath.Join(mark, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	const mounts, pids = syscall.CLONE_NEWNS, syscall.CLONE_NEWPID
	for name, c := range map[string]struct {
		flags uintptr
		setup string
		want  string
	}{
		"a copy of the machine's mounts":                                 {mounts, "", "/sys/fs/bpf the machine's"},
		"ip netns exec: a fresh /sys":                                    {mounts, "sysfs", "/proc/PID/root/sys/fs/bpf the machine's"},
		"ip netns exec, and mounted there, which is temporary":           {mounts, "sysfs bpf", "/proc/PID/root/sys/fs/bpf the machine's"},
		"a container that sees the machine's processes":                  {mounts, "root bpf", "/sys/fs/bpf its own"},
		"a container that sees the machine's processes, without a mount": {mounts, "root", "/proc/PID/root/sys/fs/bpf the machine's"},
		"a container with the machine's bound":                           {mounts | pids, "proc sysfs bind", "/sys/fs/bpf the machine's"},
		"a container with its own":                                       {mounts | pids, "proc sysfs bpf", "/sys/fs/bpf its own"},
		"a container with none":                                          {mounts | pids, "proc sysfs", "/sys/fs/bpf its own"},
		"a container with a root of its own and the machine's /proc":     {mounts | pids, "root bpf", "/sys/fs/bpf its own"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := process(c.flags, "LOXILB_TEST_PROCESS=root", "LOXILB_TEST_ROOT="+c.setup, "LOXILB_TEST_MACHINE="+machine, "LOXILB_TEST_MARK="+filepath.Base(mark))
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if rest, ok := strings.CutPrefix(out, "/proc/"); ok {
				_, rest, _ = strings.Cut(rest, "/")
				out = "/proc/PID/" + rest
			}
			if out != c.want {
				t.Errorf("the path is %q, want %q", out, c.want)
			}
		})
	}
}

// TestRootOfFirst checks that `ip netns exec`, without a BPF file system on the machine, mounts one
// outside of its own mount namespace.
func TestRootOfFirst(t *testing.T) {
	t.Parallel()
	out, err := process(syscall.CLONE_NEWNS|syscall.CLONE_NEWPID, "LOXILB_TEST_PROCESS=root", "LOXILB_TEST_ROOT=proc sysfs", "LOXILB_TEST_INNER=sysfs")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out != "/proc/1/root/sys/fs/bpf its own <nil> true" {
		t.Errorf(`got %v, want "/proc/1/root/sys/fs/bpf its own <nil> true"`, out)
	}
}

// process runs this program again in its own namespaces with an empty PATH, and returns its output.
// The thread stays as long as the process: Linux treats its end as the parent's, and threads of
// other tests end.
func process(flags uintptr, env ...string) (string, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(env, "PATH=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}
