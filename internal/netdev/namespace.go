// Package netdev is what the kernel knows of the network of one namespace: links, addresses, on-link networks and
// neighbours, as a snapshot and a watch; and the few things the load balancer asks of that kernel: own a VIP that
// nobody owns, keep the next hops of endpoints resolved, forward what comes from lo.
//
// Everything this package puts into the kernel carries the number Owner in the kernel's own "protocol" member, so that
// a restarted daemon knows its own again without a file beside it.
package netdev

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// namespace is a handle on a network namespace that outlives the thread it was taken from.
type namespace struct {
	file *os.File
}

// openNamespace takes the namespace at path, or the calling thread's when path is empty.
func openNamespace(path string) (*namespace, error) {
	if path == "" {
		path = "/proc/thread-self/ns/net"
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	return &namespace{file: file}, nil
}

func (n *namespace) close() error { return n.file.Close() }

// do runs f on a thread that is in the namespace. A thread that is there already runs it at once: entering a namespace
// needs CAP_SYS_ADMIN, which a daemon that stays at home need not have.
func (n *namespace) do(f func() error) error {
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
		// A thread that cannot go home stays locked: it ends with its goroutine and never serves another one.
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
