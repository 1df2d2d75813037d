package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// unreadName exists from when a state is opened until files that are newer than it have been read.
const unreadName = "unread"

// Unread remembers the time for comparing files that a start reads if they are newer than the
// state. Opening a state writes to it: without this, a start that ends after that, and before it
// has read them, would make them look old forever.
type Unread struct {
	Since time.Time // newer files count; zero: all files do

	dir  string
	made bool // by this start
}

// MarkUnread begins to remember, or continues after a start that ended too early. Call it before
// Open. An error means that it is not remembered; Since is valid all the same.
func MarkUnread(dir string) (*Unread, error) {
	u := &Unread{Since: LastWritten(dir), dir: dir}
	text, err := os.ReadFile(u.path())
	if err == nil {
		if before, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(string(text))); err == nil && before.Before(u.Since) {
			u.Since = before
			return u, nil
		}
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return u, nil // All will be called: nothing was ever stored
	}
	u.made = errors.Is(err, fs.ErrNotExist)
	return u, u.write()
}

// All makes all files count, as nothing was ever stored.
func (u *Unread) All() error {
	u.Since = time.Time{}
	return u.write()
}

// Withdraw forgets what this start has begun to remember, but not what an earlier one has: the
// state is not this one's.
func (u *Unread) Withdraw() error {
	if !u.made {
		return nil
	}
	return u.Done()
}

// Done is called when the files have been read.
func (u *Unread) Done() error {
	if u.dir == "" {
		return nil
	}
	if err := os.Remove(u.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(osFiles{}, u.dir)
}

func (u *Unread) path() string { return filepath.Join(u.dir, unreadName) }

// write replaces the file, so that a crash leaves the old or the new one.
func (u *Unread) write() error {
	if u.dir == "" {
		return nil // the state is in memory
	}
	next := u.path() + ".next"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(u.Since.Format(time.RFC3339Nano) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(next))
	}
	if err := os.Rename(next, u.path()); err != nil {
		return err
	}
	return syncDir(osFiles{}, u.dir)
}
