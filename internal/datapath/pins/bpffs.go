package pins

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const usualBPFFS = "/sys/fs/bpf"

// Root finds the BPF file system. `ip netns exec` gives a process a mount namespace of its own, with a fresh
// /sys: what is mounted or pinned there is gone with the process. So the machine's own is used, through the
// root of a process that has it.
func Root() (string, error) {
	pid := outerProcess()
	path := filepath.Join("/proc", pid, "root", usualBPFFS)
	if pid == "self" {
		path = usualBPFFS
	}
	if isBPFFS(path) {
		return path, nil
	}
	args := []string{"mount", "-t", "bpf", "bpf", usualBPFFS}
	if pid != "self" {
		args = append([]string{"nsenter", "--target", pid, "--mount", "--"}, args...)
	}
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("mount the BPF file system at %s: %w: %s", usualBPFFS, err, strings.TrimSpace(string(out)))
	}
	if !isBPFFS(path) {
		return "", fmt.Errorf("mount the BPF file system at %s: it is mounted, but %s does not show it", usualBPFFS, path)
	}
	return path, nil
}

// outerProcess is the pid of the oldest process whose mount namespace we may look into, which is the machine's
// (in a container, the container's): the first process, unless it is out of reach. "self" if that is ours too.
func outerProcess() string {
	own, err := os.Readlink("/proc/thread-self/ns/mnt")
	if err != nil {
		return "self"
	}
	for _, pid := range pids() {
		mnt, err := os.Readlink(filepath.Join("/proc", pid, "ns/mnt"))
		if err != nil {
			continue
		}
		if mnt == own {
			return "self"
		}
		if _, err := os.Stat(filepath.Join("/proc", pid, "root", usualBPFFS)); err == nil {
			return pid
		}
	}
	return "self"
}

// pids are the processes, oldest first.
func pids() []string {
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
