package flowlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// lookEvery is the interval of checks whether the file still has its name.
const lookEvery = time.Second

// File is a file of limited size: a full file is renamed to NAME.1, the previous one to NAME.2, and
// so on.
type File struct {
	name   string
	most   int64 // bytes
	keep   int   // renamed files that are kept
	file   *os.File
	size   int64
	looked time.Time
}

// NewFile returns a file that is opened with the first line, for appending. It is reopened after
// others have renamed it.
func NewFile(name string, most int64, keep int) *File {
	return &File{name: filepath.Clean(name), most: most, keep: keep}
}

// Name returns the path of the file.
func (f *File) Name() string { return f.name }

func (f *File) open() error {
	file, err := os.OpenFile(f.name, os.O_APPEND|os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o640)
	if err != nil {
		return fmt.Errorf("open the log of connections: %w", err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", f.name)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.file, f.size = file, info.Size()
	return nil
}

// Write writes whole lines. It removes a partially written line.
func (f *File) Write(lines []byte) (int, error) {
	if err := f.ensureOpen(); err != nil {
		return 0, err
	}
	if f.size > 0 && f.size+int64(len(lines)) > f.most {
		if err := f.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := f.file.Write(lines)
	if err == nil {
		f.size += int64(n)
		return n, nil
	}
	if n > 0 {
		err = errors.Join(err, f.file.Truncate(f.size))
	}
	return 0, err
}

// ensureOpen opens the file if it is not open, or if another file has its name now.
func (f *File) ensureOpen() error {
	if f.file == nil {
		return f.open()
	}
	now := time.Now()
	if now.Sub(f.looked) < lookEvery {
		return nil
	}
	f.looked = now
	named, err := os.Lstat(f.name)
	own, failed := f.file.Stat()
	if err == nil && failed == nil && os.SameFile(named, own) {
		f.size = own.Size() // it may have been truncated
		return nil
	}
	return f.reopen()
}

func (f *File) reopen() error {
	old := f.file
	f.file = nil
	return errors.Join(old.Close(), f.open())
}

// rotate renames the file, and removes the oldest one.
func (f *File) rotate() error {
	if f.keep == 0 {
		if err := f.file.Truncate(0); err != nil {
			return fmt.Errorf("empty the log of connections: %w", err)
		}
		f.size = 0
		return nil
	}
	for n := f.keep; n >= 1; n-- {
		err := os.Rename(f.numbered(n-1), f.numbered(n))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("rotate the log of connections: %w", err)
		}
	}
	return f.reopen()
}

func (f *File) numbered(n int) string {
	if n == 0 {
		return f.name
	}
	return f.name + "." + strconv.Itoa(n)
}

// Close closes the file.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}

// Stream is a stream that is never opened or closed, such as standard output.
type Stream struct {
	io.Writer
	Title string
}

// Name returns the title of the stream.
func (s Stream) Name() string { return s.Title }

// Close leaves the file to its other users.
func (Stream) Close() error { return nil }
