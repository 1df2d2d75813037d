package datapath

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const usualBPFFS = "/sys/fs/bpf"

// PinDir is where the data path of the current network namespace is pinned, as seen from this process. By
// default (path empty) it is one folder for each namespace, named by the cookie that no other namespace gets
// until the next boot. The BPF file system is mounted if nobody has done so.
func PinDir(path string) (string, error) {
	root, err := bpffs()
	if err != nil {
		return "", err
	}
	if below, ok := strings.CutPrefix(path, usualBPFFS+"/"); ok {
		return filepath.Join(root, below), nil
	}
	if path != "" {
		return path, nil
	}
	cookie, err := netnsCookie()
	if err != nil {
		return "", fmt.Errorf("identify the network namespace: %w", err)
	}
	return filepath.Join(root, "loxilb", fmt.Sprintf("netns-%d", cookie)), nil
}

// bpffs finds the BPF file system. `ip netns exec` gives a process a mount namespace of its own, with a fresh
// /sys: what is mounted or pinned there is gone with the process. So the one of the machine's first process is
// used, which is the same where nothing is amiss.
func bpffs() (string, error) {
	first := "/proc/1/root" + usualBPFFS
	if sameMountNamespace() {
		first = usualBPFFS
	}
	if isBPFFS(first) {
		return first, nil
	}
	args := []string{"-t", "bpf", "bpf", usualBPFFS}
	cmd := exec.Command("mount", args...)
	if first != usualBPFFS {
		cmd = exec.Command("nsenter", append([]string{"--target=1", "--mount", "--", "mount"}, args...)...)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("mount the BPF file system at %s: %w: %s", usualBPFFS, err, strings.TrimSpace(string(out)))
	}
	if !isBPFFS(first) {
		return "", fmt.Errorf("mount the BPF file system at %s: mounted, but not visible at %s", usualBPFFS, first)
	}
	return first, nil
}

func sameMountNamespace() bool {
	own, err1 := os.Readlink("/proc/thread-self/ns/mnt")
	first, err2 := os.Readlink("/proc/1/ns/mnt")
	return err1 != nil || err2 != nil || own == first
}

func isBPFFS(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && uint32(st.Type) == unix.BPF_FS_MAGIC
}

// netnsCookie identifies the thread's network namespace; unlike its inode it is never used again (5.14).
func netnsCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
}
