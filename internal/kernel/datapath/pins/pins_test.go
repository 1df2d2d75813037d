package pins

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"loxilb/test/await"
)

// No test runs on the main thread: it never ends, nor would a namespace that it enters.
func init() { runtime.LockOSThread() }

// TestMain lets the test binary be the second process of some tests.
func TestMain(m *testing.M) {
	switch os.Getenv("LOXILB_TEST_PROCESS") {
	case "lock":
		holdLock()
	case "root":
		printRoot()
	case "namespaces":
		checkNamespaces()
	default:
		os.Exit(m.Run())
	}
}

// scratch returns a directory of the test in the BPF file system.
func scratch(t testing.TB) string {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(root, "loxilb-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// namespace returns a new network namespace, which lives until the file is closed.
func namespace(t testing.TB) *os.File {
	t.Helper()
	var ns *os.File
	err := onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		ns, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

// inside runs f in a namespace.
func inside(t testing.TB, ns *os.File, f func() error) {
	t.Helper()
	err := onThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// onThread runs f on a thread of its own, which ends with it.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	await.True(t, 20*time.Second, what, ok)
}

// smallMap pins a map in a directory under this name.
func smallMap(t testing.TB, dir, name string) ebpf.MapID {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: 4096, MaxEntries: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Pin(filepath.Join(Maps(dir), name)); err != nil {
		t.Fatal(err)
	}
	info, err := m.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	return id
}

func program(t testing.TB, kind ebpf.ProgramType, at ebpf.AttachType) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "loxilb_test", Type: kind, AttachType: at, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// socketLink attaches an empty program to the cgroup of all sockets, and pins the link.
func socketLink(t testing.TB, dir string) link.ID {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, Sockets), 0o700); err != nil {
		t.Fatal(err)
	}
	fs, err := unix.Fsopen("cgroup2", unix.FSOPEN_CLOEXEC)
	if err == nil {
		defer unix.Close(fs)
		err = unix.FsconfigCreate(fs)
	}
	if err != nil {
		t.Fatal(err)
	}
	cgroup, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(cgroup)
	const at = ebpf.AttachCgroupInetSockRelease
	l, err := link.AttachRawLink(link.RawLinkOptions{Target: cgroup, Program: program(t, ebpf.CGroupSock, at), Attach: at})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Pin(filepath.Join(dir, Sockets, "release")); err != nil {
		t.Fatal(err)
	}
	info, err := l.Info()
	if err != nil {
		t.Fatal(err)
	}
	return info.ID
}

func mapExists(id ebpf.MapID) bool {
	m, err := ebpf.NewMapFromID(id)
	if err == nil {
		_ = m.Close()
	}
	return !errors.Is(err, os.ErrNotExist)
}

func linkExists(id link.ID) bool {
	l, err := link.NewFromID(id)
	if err == nil {
		_ = l.Close()
	}
	return !errors.Is(err, os.ErrNotExist)
}

// TestInterruptedRemoval checks that the remains of a killed removal are removed by the next start,
// and by the next removal.
func TestInterruptedRemoval(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(dir string) error{"start": Prepare, "removal": Remove} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(scratch(t), "pins")
			if err := Prepare(dir); err != nil {
				t.Fatal(err)
			}
			removed := filepath.Join(dir, removedFolder)
			for _, folder := range []string{removed, Maps(dir)} {
				if err := os.MkdirAll(folder, 0o700); err != nil {
					t.Fatal(err)
				}
				m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(m.Pin(filepath.Join(folder, "services")), m.Close()); err != nil {
					t.Fatal(err)
				}
			}
			if err := next(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(removed); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the pin is still there: %v", err)
			}
			if _, err := os.Stat(filepath.Join(Maps(dir), "services")); (err == nil) != (name == "start") {
				t.Errorf("the maps that are in use: %v", err)
			}
		})
	}
}
