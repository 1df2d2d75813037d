package pins

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"loxilb/internal/host/filelock"
)

// Lock is held by the one process that serves a pin directory. It always ends with the process.
type Lock struct{ dir *os.File }

// InUseError reports that a daemon serves the pin directory.
type InUseError struct{ *filelock.HeldError }

func (e *InUseError) Error() string {
	return fmt.Sprintf("pin directory %s is in use by %s", e.Path, e.Holder())
}

// Acquire makes the pin directory if need be and locks it, or returns an *InUseError.
func Acquire(dir string) (*Lock, error) {
	if err := checkPlace(dir); err != nil {
		return nil, err
	}
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make pin directory: %w", err)
		}
		l, err := acquire(dir)
		if !errors.Is(err, os.ErrNotExist) {
			return l, err
		}
	}
}

// AcquireExisting is Acquire for an existing directory: os.ErrNotExist if it does not exist.
func AcquireExisting(dir string) (*Lock, error) {
	if err := checkPlace(dir); err != nil {
		return nil, err
	}
	return acquire(dir)
}

// acquire returns os.ErrNotExist also when the directory was removed, and perhaps made again,
// before it was locked.
func acquire(dir string) (*Lock, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open pin directory: %w", err)
	}
	var locked, named unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &locked); err != nil {
		return nil, errors.Join(fmt.Errorf("read pin directory: %w", err), f.Close())
	}
	err = filelock.TryDir(f, ownNames)
	if held := (*filelock.HeldError)(nil); errors.As(err, &held) {
		_ = f.Close()
		return nil, &InUseError{held}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock pin directory %s: %w", dir, err), f.Close())
	}
	if err := unix.Stat(dir, &named); err != nil || named.Dev != locked.Dev || named.Ino != locked.Ino {
		return nil, errors.Join(os.ErrNotExist, f.Close())
	}
	if err := unix.Unlinkat(int(f.Fd()), detachMark, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, errors.Join(fmt.Errorf("remove the mark of a detach in %s: %w", dir, err), f.Close())
	}
	return &Lock{f}, nil
}

// ownNames reports whether all names in a directory are ours.
func ownNames(names []string) bool {
	own := append(linkFolders(), mapsFolder, removedFolder, layoutsPin, witnessPin, detachMark)
	return !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(own, name) })
}

// Lost reports whether the holder must give up the lock, as for `loxilb --detach --force`: another
// process has called TakeOver, or the directory was removed.
func (l *Lock) Lost() bool {
	var s unix.Stat_t
	if unix.Fstat(int(l.dir.Fd()), &s) != nil {
		return false
	}
	return s.Nlink == 0 || unix.Fstatat(int(l.dir.Fd()), detachMark, &s, 0) == nil
}

// Release ends the lock. Pins stay.
func (l *Lock) Release() error { return l.dir.Close() }
