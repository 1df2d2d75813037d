package pins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"loxilb/internal/host/filelock"
)

// detachMark is a folder of the pin directory by which another process requests the lock.
const detachMark = "detach"

// TakeOver asks the daemon that holds the lock to give up its VIPs, and waits until it has released
// the lock. It returns an *InUseError if ctx ends first, for example because the daemon is
// suspended.
func TakeOver(ctx context.Context, dir string) (*Lock, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open pin directory: %w", err)
	}
	if err := os.Mkdir(filepath.Join(dir, detachMark), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, errors.Join(fmt.Errorf("ask for the pin directory: %w", err), f.Close())
	}
	err = filelock.Wait(ctx, f)
	if held := (*filelock.HeldError)(nil); errors.As(err, &held) {
		err = &InUseError{held}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Lock{f}, nil
}

// Watch calls changed after changes of the locked directory, until ctx ends. It returns an error if
// the kernel cannot report them.
func (l *Lock) Watch(ctx context.Context, changed func()) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch the pin directory: %w", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	stop := context.AfterFunc(ctx, func() { _ = events.Close() })
	defer stop()
	defer events.Close() //nolint:errcheck // only read
	if _, err := unix.InotifyAddWatch(fd, l.dir.Name(), unix.IN_CREATE|unix.IN_DELETE|unix.IN_ONLYDIR); err != nil {
		return fmt.Errorf("watch the pin directory: %w", err)
	}
	changed() // changes before the watch began
	for buffer := make([]byte, 4096); ; {
		if _, err := events.Read(buffer); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("watch the pin directory: %w", err)
		}
		changed()
	}
}
