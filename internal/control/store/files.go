package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"loxilb/internal/host/filelock"
)

// fileSystem has all disk operations of the store, so tests can make each of them fail. Paths are
// absolute.
type fileSystem interface {
	Stat(path string) (fs.FileInfo, error)
	Mkdir(path string) error
	OpenDir(path string) (directory, error)
	ReadDir(path string) ([]fs.DirEntry, error)
	ReadFile(path string) ([]byte, error)
	Create(path string) (file, error) // for writing, empty
	Open(path string) (file, error)   // for writing
	Rename(from, to string) error
	Link(from, to string) error
	Remove(path string) error
}

type file interface {
	io.WriteCloser
	io.WriterAt
	Truncate(size int64) error
	Sync() error
	Datasync() error
}

type directory interface {
	Sync() error
	Lock() error // fails immediately with a *filelock.HeldError if another process has the lock
	Unlock() error
	Close() error
}

// osFiles is the fileSystem of the machine.
type osFiles struct{}

func (osFiles) Stat(path string) (fs.FileInfo, error)      { return os.Stat(path) }
func (osFiles) Mkdir(path string) error                    { return os.Mkdir(path, 0o700) }
func (osFiles) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }
func (osFiles) ReadFile(path string) ([]byte, error)       { return os.ReadFile(path) }
func (osFiles) Rename(from, to string) error               { return os.Rename(from, to) }
func (osFiles) Link(from, to string) error                 { return os.Link(from, to) }
func (osFiles) Remove(path string) error                   { return os.Remove(path) }

func (osFiles) OpenDir(path string) (directory, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &osDirectory{File: f}, nil
}

func (osFiles) Create(path string) (file, error) {
	return openFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
}
func (osFiles) Open(path string) (file, error) { return openFile(path, os.O_WRONLY) }

func openFile(path string, flags int) (file, error) {
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

type osFile struct{ *os.File }

// Datasync also fails if the file was deleted: its content would be lost when the process ends.
func (f osFile) Datasync() error {
	if err := unix.Fdatasync(int(f.Fd())); err != nil {
		return err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return err
	}
	if stat.Nlink == 0 {
		return fmt.Errorf("%s was deleted: %w", f.Name(), fs.ErrNotExist)
	}
	return nil
}

type osDirectory struct {
	*os.File
	inside *os.File // locked file in a directory that other users can lock; nil: none
}

// lockName is the file to lock in a directory that other users can lock, such as /etc.
const lockName = "loxilb.lock"

// Lock locks the directory, or a file in it if the directory is not loxilb's alone. If that file
// exists, Lock locks it too, even if the directory is loxilb's alone now.
func (d *osDirectory) Lock() error {
	err := filelock.TryDir(d.File, ownNames)
	path := filepath.Join(d.Name(), lockName)
	if shared := (*filelock.SharedError)(nil); err != nil && !errors.As(err, &shared) {
		return err
	}
	if _, missing := os.Lstat(path); missing != nil && err == nil {
		return nil
	}
	if d.inside, err = filelock.Open(path); err != nil {
		return err
	}
	return filelock.Try(d.inside)
}

// ownNames reports whether all names of a directory are files of the daemon. An empty directory may
// belong to others, so the result for it is false.
func ownNames(names []string) bool {
	own := func(name string) bool {
		for _, begin := range []string{
			journalPrefix, "snapshot.", revisionsName, lockName, unreadName, // of the store
			"users.json", "audit.jsonl", "kernel-objects", "records", // of other packages
		} {
			if strings.HasPrefix(name, begin) {
				return true
			}
		}
		return false
	}
	return len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return !own(name) })
}

// Unlock releases the locks. Closing the files would not do that while a child process, between
// fork and exec, has copies of the descriptors. If the process ends without it, the kernel releases
// the locks.
func (d *osDirectory) Unlock() error {
	err := unix.Flock(int(d.Fd()), unix.LOCK_UN)
	if d.inside != nil {
		err = errors.Join(err, unix.Flock(int(d.inside.Fd()), unix.LOCK_UN))
	}
	return err
}

// Close closes the directory and the locked file in it.
func (d *osDirectory) Close() error {
	err := d.File.Close()
	if d.inside != nil {
		err = errors.Join(err, d.inside.Close())
	}
	return err
}

func syncDir(files fileSystem, path string) error {
	dir, err := files.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
