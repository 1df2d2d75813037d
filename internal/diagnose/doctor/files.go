package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func (m *Machine) path(parts ...string) string {
	root := m.Root
	if root == "" {
		root = "/"
	}
	return filepath.Join(append([]string{root}, parts...)...)
}

// read returns the content of a file, without the final newline. It returns false if the kernel or
// the network namespace has no such file.
func (m *Machine) read(parts ...string) (text string, there bool) {
	b, err := os.ReadFile(m.path(parts...))
	return strings.TrimSpace(string(b)), err == nil
}

// number returns the content of a file with a single number.
func (m *Machine) number(parts ...string) (n int64, there bool) {
	text, ok := m.read(parts...)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

func (m *Machine) list(parts ...string) (names []string) {
	entries, _ := os.ReadDir(m.path(parts...))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// setting returns a sysctl by its name with slashes for dots.
func (m *Machine) setting(name string) (int64, bool) { return m.number("proc/sys", name) }

// sysctl returns a command that sets a sysctl, and the equivalent fix.
func sysctl(name, value string) (command string, fix Fix) {
	said := name
	if !strings.Contains(name, ".") { // with slashes sysctl leaves dots unchanged, as in eth0.100
		said = strings.ReplaceAll(name, "/", ".")
	}
	return "sysctl -w " + said + "=" + value, write{path: "proc/sys/" + name, value: value}
}

// write writes a value into a file of the kernel.
type write struct{ path, value string }

func (w write) do(m *Machine) (string, error) {
	was, there := m.read(w.path)
	if !there {
		return "", fmt.Errorf("/%s: %w", w.path, fs.ErrNotExist)
	}
	if err := os.WriteFile(m.path(w.path), []byte(w.value), 0); err != nil {
		return "", err
	}
	if is, _ := m.read(w.path); is == was && is != w.value {
		return "", fmt.Errorf("/%s is still %s: the kernel did not accept %s", w.path, is, w.value)
	}
	return fmt.Sprintf("/%s changed from %s to %s until the next boot", w.path, was, w.value), nil
}

// mount mounts a BPF file system.
type mount struct{}

func (mount) do(m *Machine) (string, error) {
	at := m.path("sys/fs/bpf")
	if err := unix.Mount("bpf", at, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		if errors.Is(err, unix.EPERM) {
			return "", errors.New("only root can mount")
		}
		return "", err
	}
	return "mounted a BPF file system at /sys/fs/bpf", nil
}
