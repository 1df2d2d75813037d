package netnstest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Directories of files that labs create.
const (
	netnsDir        = "/run/netns"             // iproute2's named namespaces
	daemonsDir      = "/run/netnstest.daemons" // files of daemons
	pinsDir         = "/sys/fs/bpf"            // one directory of pins for each daemon
	reservationsDir = "/run/netnstest"         // one empty file for each lab, so no two labs share a name
)

// labPrefix begins the names of namespaces that end with their process: lab<pid>-<n>-<name>.
const labPrefix = "lab"

// reserve reserves a prefix. It returns os.ErrExist if a lab has it.
func reserve(prefix string) error {
	f, err := os.OpenFile(filepath.Join(reservationsDir, prefix), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

func release(prefix string) error { return os.Remove(filepath.Join(reservationsDir, prefix)) }

// prepareDirs creates the directories, and makes netnsDir a shared mount point, as iproute2 does.
// Otherwise, the first `ip netns add` would hide earlier namespaces under its own mount, and they
// could not be removed.
func prepareDirs() error {
	for _, d := range []string{netnsDir, reservationsDir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	lock, err := os.OpenFile(filepath.Join(reservationsDir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", reservationsDir, err)
	}
	if unix.Mount("", netnsDir, "none", unix.MS_SHARED|unix.MS_REC, "") == nil {
		return nil
	}
	if err := unix.Mount(netnsDir, netnsDir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s: %w", netnsDir, err)
	}
	if err := unix.Mount("", netnsDir, "none", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share %s: %w", netnsDir, err)
	}
	return nil
}

// removeStale removes namespaces, pins and files of labs of dead processes. It ignores failures:
// another process may be removing the same names.
func removeStale() {
	_ = removeAll(ownerIsDead)
	for _, dir := range []string{pinsDir, daemonsDir, reservationsDir} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if ownerIsDead(e.Name()) {
				_ = os.RemoveAll(filepath.Join(dir, e.Name()))
			}
		}
	}
}

// ownerIsDead reports whether a name belongs to a lab of New whose process has ended.
func ownerIsDead(name string) bool {
	rest, ok := strings.CutPrefix(name, labPrefix)
	if !ok {
		return false
	}
	digits, _, ok := strings.Cut(rest, "-")
	if !ok {
		return false
	}
	pid, err := strconv.Atoi(digits)
	return err == nil && pid > 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

func removeAll(match func(name string) bool) error {
	entries, err := os.ReadDir(netnsDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list namespaces: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if match(e.Name()) {
			errs = append(errs, removeNamespace(e.Name()))
		}
	}
	return errors.Join(errs...)
}

// removeNamespace ends all processes in a named namespace, and deletes the namespace.
func removeNamespace(name string) error {
	path := filepath.Join(netnsDir, name)
	endProcessesOf(path)
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount namespace %s: %w", name, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove namespace %s: %w", name, err)
	}
	return nil
}

// endProcessesOf kills all processes in the namespace of a file, except for this one: its threads
// may be in the namespace for a while.
func endProcessesOf(namespace string) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && pid != os.Getpid() && sameNamespace(filepath.Join("/proc", e.Name(), "ns/net"), namespace) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// sameNamespace reports whether two files refer to the same namespace.
func sameNamespace(a, b string) bool {
	var sa, sb unix.Stat_t
	if unix.Stat(a, &sa) != nil || unix.Stat(b, &sb) != nil {
		return false
	}
	return sa.Dev == sb.Dev && sa.Ino == sb.Ino
}
