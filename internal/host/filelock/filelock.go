// Package filelock takes exclusive locks of files and directories (flock(2)) that other users of
// the machine cannot take first: anyone who can open a file can lock it, even without permission to
// write.
//
// The kernel drops a lock when the last copy of its descriptor is closed, so a killed process
// leaves none.
package filelock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// retryInterval is how often Wait retries.
const retryInterval = 20 * time.Millisecond

// HeldError reports that another process holds a lock. It is unix.EWOULDBLOCK.
type HeldError struct {
	Path string
	PID  int // 0: it is exiting, or not visible from here
}

func (e *HeldError) Error() string { return e.Path + " is locked by " + e.Holder() }

// Holder names the process that holds the lock.
func (e *HeldError) Holder() string {
	if e.PID == 0 {
		return "a process that is ending, or outside of this PID namespace"
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", e.PID))
	if err != nil {
		return "process " + strconv.Itoa(e.PID)
	}
	return fmt.Sprintf("process %d (%s)", e.PID, strings.TrimSpace(string(name)))
}

// Unwrap lets callers test for the errno of flock(2).
func (e *HeldError) Unwrap() error { return unix.EWOULDBLOCK }

// Open opens a file to lock, which only its owner can open. It creates the file if needed, and
// removes the permissions of others.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = f.Chmod(0o600)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// SharedError reports that other users can read a directory, and may have files in it. Its
// permissions stay.
type SharedError struct{ Path string }

func (e *SharedError) Error() string {
	return "directory " + e.Path + " is open to other users and holds other files than loxilb's: " +
		"choose another one, or close it (chmod 700)"
}

// restrictToOwner restricts a directory to its owner (0700), so other users cannot lock it. It
// returns a *SharedError if own reports that the names in it are not all the caller's. It does not
// change a directory that is shared on purpose: of another owner, or with the sticky bit, as /tmp
// is.
func restrictToOwner(dir *os.File, own func(names []string) bool) error {
	var s unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &s); err != nil {
		return err
	}
	if s.Mode&0o077 == 0 || s.Mode&unix.S_ISVTX != 0 || int(s.Uid) != os.Geteuid() {
		return nil
	}
	names, err := listNames(dir)
	if err != nil {
		return err
	}
	if !own(names) {
		return &SharedError{dir.Name()}
	}
	err = unix.Fchmod(int(dir.Fd()), 0o700)
	if errors.Is(err, unix.EROFS) {
		return nil
	}
	return err
}

// listNames lists a directory through its own descriptor, so dir's file position does not change.
func listNames(dir *os.File) ([]string, error) {
	again, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return nil, err
	}
	names, err := again.Readdirnames(-1)
	return names, errors.Join(err, again.Close())
}

// TryDir locks a directory without waiting, or returns a *HeldError. It restricts the directory
// to its owner if it holds only the caller's files; otherwise it changes and locks nothing, and
// returns a *SharedError.
func TryDir(dir *os.File, own func(names []string) bool) error {
	if err := restrictToOwner(dir, own); err != nil {
		if shared := (*SharedError)(nil); errors.As(err, &shared) {
			return err
		}
		return &fs.PathError{Op: "chmod", Path: dir.Name(), Err: err}
	}
	return Try(dir)
}

// Try locks an open file without waiting, or returns a *HeldError.
func Try(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return &HeldError{f.Name(), holder(f)}
		default:
			return err
		}
	}
}

// Wait locks an open file, or returns a *HeldError when ctx ends first.
func Wait(ctx context.Context, f *os.File) error {
	tick := time.NewTicker(retryInterval)
	defer tick.Stop()
	for {
		err := Try(f)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// holder returns the process that holds the lock of a file, or 0 if it is not visible.
func holder(f *os.File) int {
	var s unix.Stat_t
	if unix.Fstat(int(f.Fd()), &s) != nil {
		return 0
	}
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(s.Dev), unix.Minor(s.Dev), s.Ino)
	// The kernel lists locks a page at a time. If locks are released between two pages, later
	// ones move up, and may be on neither page.
	for range 5 {
		if pid, listed := listedHolder(file); listed {
			return pid
		}
	}
	return 0
}

// listedHolder looks for a file among the machine's locks.
func listedHolder(file string) (pid int, listed bool) {
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return 0, false
	}
	defer locks.Close() //nolint:errcheck // it is only read
	for lines := bufio.NewScanner(locks); lines.Scan(); {
		// "1: FLOCK  ADVISORY  WRITE 1234 00:27:31645 0 EOF"
		if w := strings.Fields(lines.Text()); len(w) > 5 && w[1] == "FLOCK" && w[5] == file {
			pid, _ := strconv.Atoi(w[4]) // -1 and 0 are processes of other namespaces
			return max(pid, 0), true
		}
	}
	return 0, false
}
