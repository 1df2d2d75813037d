package netlink

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace. It stays valid when the thread that it was taken from ends.
type Namespace struct {
	file *os.File
}

// OpenNamespace opens the namespace at path, or the calling thread's if path is empty.
func OpenNamespace(path string) (*Namespace, error) {
	if path == "" {
		path = "/proc/thread-self/ns/net"
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	return &Namespace{file: file}, nil
}

// Close closes the namespace's file.
func (n *Namespace) Close() error { return n.file.Close() }

// Do runs f on a thread in the namespace. If the calling thread is there already, it runs f
// directly: entering a namespace needs CAP_SYS_ADMIN, which a daemon that stays in its namespace
// need not have.
func (n *Namespace) Do(f func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer home.Close()
	if sameFile(home, n.file) {
		defer runtime.UnlockOSThread()
		return f()
	}
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace: %w", err)
	}
	defer func() {
		// A thread that cannot go back stays locked: it ends with its goroutine and never serves
		// another one.
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return f()
}

func sameFile(a, b *os.File) bool {
	sa, errA := a.Stat()
	sb, errB := b.Stat()
	return errA == nil && errB == nil && os.SameFile(sa, sb)
}
