package pins

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Lock says that this process alone serves a pin directory. It ends with the process, however that ends.
type Lock struct{ dir *os.File }

// InUseError says that a daemon serves the pin directory.
type InUseError struct {
	Dir string
	PID int // 0: of a process that is not visible from here
}

func (e *InUseError) Error() string {
	who := "a process outside of this PID namespace"
	if e.PID != 0 {
		who = "process " + strconv.Itoa(e.PID)
	}
	return fmt.Sprintf("pin directory %s is in use by %s", e.Dir, who)
}

// Acquire makes the pin directory if need be and locks it, or returns an *InUseError.
func Acquire(dir string) (*Lock, error) {
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

// AcquireExisting is Acquire for a directory that is there: os.ErrNotExist if it is not.
func AcquireExisting(dir string) (*Lock, error) { return acquire(dir) }

// acquire returns os.ErrNotExist also when the directory was removed, and perhaps made anew, before it was locked.
func acquire(dir string) (*Lock, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open pin directory: %w", err)
	}
	var locked, named unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &locked); err != nil {
		return nil, errors.Join(fmt.Errorf("read pin directory: %w", err), f.Close())
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		_ = f.Close()
		return nil, &InUseError{dir, holder(locked.Dev, locked.Ino)}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock pin directory %s: %w", dir, err), f.Close())
	}
	if err := unix.Stat(dir, &named); err != nil || named.Dev != locked.Dev || named.Ino != locked.Ino {
		return nil, errors.Join(os.ErrNotExist, f.Close())
	}
	return &Lock{f}, nil
}

// Lost says whether the directory was removed behind the holder's back, as `loxilb --detach --force` does: what was
// pinned there is in use no more.
func (l *Lock) Lost() bool {
	var s unix.Stat_t
	return unix.Fstat(int(l.dir.Fd()), &s) == nil && s.Nlink == 0
}

// Release ends the lock. What is pinned stays.
func (l *Lock) Release() error { return l.dir.Close() }

// holder is the process that holds the lock of a file, 0 if it is not visible.
func holder(dev, ino uint64) int {
	f, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer f.Close()
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(dev), unix.Minor(dev), ino)
	for s := bufio.NewScanner(f); s.Scan(); {
		// "1: FLOCK  ADVISORY  WRITE 1234 00:27:31645 0 EOF"
		if w := strings.Fields(s.Text()); len(w) > 5 && w[1] == "FLOCK" && w[5] == file {
			pid, _ := strconv.Atoi(w[4])
			return max(pid, 0)
		}
	}
	return 0
}
