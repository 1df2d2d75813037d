package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/host/filelock"
	"loxilb/internal/host/machine"
)

// The modes of the UNIX socket: while it is made and where no group may use it, and with a group.
const (
	ownerMode = 0o600
	groupMode = 0o660
)

// listenUnix replaces a socket without a listener, and no other file. Members of the group (0:
// none) may connect.
func listenUnix(ctx context.Context, path string, group int) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of socket %s: %w", path, err)
	}
	if dir == machine.SocketDir {
		unlock, err := lockDir(ctx, dir)
		if err != nil {
			return nil, err
		}
		defer unlock()
		removeOrphans(ctx, dir, path)
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	// The file gets the mode of the socket when it is bound: at no moment can others connect.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), ownerMode) }), err)
	}}
	ln, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", path, err)
	}
	if group == 0 {
		return ln, nil
	}
	if err := errors.Join(os.Lchown(path, -1, group), os.Chmod(path, groupMode)); err != nil {
		_ = ln.Close() // the error that matters is the first
		return nil, fmt.Errorf("let the group use socket %s: %w", path, err)
	}
	return ln, nil
}

// lockWait is how long a daemon waits for others on this machine, which lock the directory for
// milliseconds.
const lockWait = 5 * time.Second

// lockDir keeps other daemons from making and removing sockets: a socket that is bound and does not
// listen yet looks like a dead one. It locks a file of mode 0600, since every user can open, and so
// lock, the directory itself.
func lockDir(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := filelock.Open(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	if err := filelock.Wait(ctx, f); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
	}
	return func() { _ = f.Close() }, nil // closing the file unlocks it
}

// removeOrphans removes the sockets that daemons of other namespaces left when they were killed.
// The directory is locked.
func removeOrphans(ctx context.Context, dir, own string) {
	for _, pattern := range []string{"netns-*.sock", "loxilb.sock"} { // the latter was used by older versions
		list, _ := filepath.Glob(filepath.Join(dir, pattern)) // the patterns are right
		for _, path := range list {
			if path != own {
				_ = removeStale(ctx, path) // a socket with a listener stays
			}
		}
	}
}

func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at socket %s: %w", path, err)
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("listen on socket %s: there is a file that is not a socket", path)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close() // it was opened to see whether there is a listener
		return fmt.Errorf("listen on socket %s: another process answers there", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("look at socket %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the old socket %s: %w", path, err)
	}
	return nil
}
