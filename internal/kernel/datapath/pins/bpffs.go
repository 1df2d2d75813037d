package pins

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

const usualBPFFS = "/sys/fs/bpf"

// Root returns the BPF file system in which pins survive this process. It is mounted if necessary.
//
// It prefers this process's own mount. The exception is a mount namespace with the machine's root
// directory, like that of `ip netns exec`: its mounts end with its last process. Then it uses the
// machine's mount, through the root directory of a process that has it.
func Root() (string, error) {
	outer := outerProcess()
	if isBPFFS(usualBPFFS) && (outer == "" || !isView(outer) || sameDevice(usualBPFFS, outerPath(outer))) {
		return usualBPFFS, nil
	}
	if outer == "" {
		if err := mountBPFFS(); err != nil {
			return "", fmt.Errorf("mount the BPF file system at %s: %w", usualBPFFS, err)
		}
		return usualBPFFS, nil
	}
	path := outerPath(outer)
	if isBPFFS(path) {
		return path, nil
	}
	if err := mountOutside(outer); err != nil {
		return "", fmt.Errorf("mount the BPF file system at %s of process %s: %w", usualBPFFS, outer, err)
	}
	if !isBPFFS(path) {
		return "", fmt.Errorf("mount the BPF file system at %s: it is mounted, but %s does not show it", usualBPFFS, path)
	}
	return path, nil
}

func outerPath(pid string) string { return filepath.Join("/proc", pid, "root", usualBPFFS) }

// isView reports whether this process has the same root directory as another one, so it is not in a
// container of its own.
func isView(pid string) bool {
	var ours, theirs unix.Stat_t
	return unix.Stat("/", &ours) == nil && unix.Stat(filepath.Join("/proc", pid, "root"), &theirs) == nil &&
		ours.Dev == theirs.Dev && ours.Ino == theirs.Ino
}

// sameDevice reports whether two paths are in one file system, however often it is mounted.
func sameDevice(a, b string) bool {
	var sa, sb unix.Stat_t
	return unix.Stat(a, &sa) == nil && unix.Stat(b, &sb) == nil && sa.Dev == sb.Dev
}

func mountBPFFS() error { return unix.Mount("bpf", usualBPFFS, "bpf", 0, "mode=0700") }

// mountOutside mounts in the mount namespace of a process.
func mountOutside(pid string) error {
	ns, err := os.Open(filepath.Join("/proc", pid, "ns/mnt"))
	if err != nil {
		return err
	}
	defer ns.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS)
		}
		if err == nil {
			err = mountBPFFS()
		}
		done <- err
	}()
	return <-done
}

// outerProcess returns the pid of the oldest process whose mount namespace is accessible, which is
// the machine's (in a container, the container's): the first process, unless it is inaccessible.
// Empty if that namespace is also ours.
func outerProcess() string {
	own, err := os.Readlink("/proc/thread-self/ns/mnt")
	if err != nil {
		return ""
	}
	for _, pid := range processes() {
		mnt, err := os.Readlink(filepath.Join("/proc", pid, "ns/mnt"))
		if err != nil {
			continue
		}
		if mnt == own {
			return ""
		}
		if _, err := os.Stat(outerPath(pid)); err == nil {
			return pid
		}
	}
	return ""
}

// processes returns the pids, oldest first.
func processes() []string {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var numbers []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	out := make([]string, len(numbers))
	for i, n := range numbers {
		out[i] = strconv.Itoa(n)
	}
	return out
}

func isBPFFS(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && uint32(st.Type) == unix.BPF_FS_MAGIC
}
