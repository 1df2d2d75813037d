package probe

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Files is the directory of probes' files. API users name them, and the daemon reads them as root:
// so it reads only regular files in this directory, and evidence about them consists of constant
// sentences.
type Files struct {
	Dir string
	Log *slog.Logger // for details that evidence omits
}

// maxFileSize bounds the size of a file.
const maxFileSize = 1 << 20

// stamp identifies a version of a file.
type stamp struct {
	changed time.Time
	size    int64
}

// contains reports whether a file is below the directory.
func (f Files) contains(name string) bool {
	_, ok := f.inside(name)
	return ok
}

func (f Files) inside(name string) (string, bool) {
	rel, err := filepath.Rel(f.Dir, name)
	return rel, err == nil && filepath.IsLocal(rel)
}

func (f Files) stamp(name string) (stamp, error) {
	file, info, err := f.open(name)
	if err != nil {
		return stamp{}, err
	}
	return stamp{info.ModTime(), info.Size()}, file.Close()
}

func (f Files) read(name string) ([]byte, error) {
	file, _, err := f.open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFileSize+1)) // it may have grown
	if err == nil && len(content) > maxFileSize {
		err = errLarge
	}
	return content, err
}

var errLarge = fmt.Errorf("has more than %d bytes", maxFileSize)

// open opens a regular file. Other files do not block it: a pipe without a writer, a terminal.
func (f Files) open(name string) (*os.File, fs.FileInfo, error) {
	rel, ok := f.inside(name)
	if !ok {
		return nil, nil, fmt.Errorf("is not below %s", f.Dir)
	}
	root, err := os.OpenRoot(f.Dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	file, err := root.OpenFile(rel, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	switch {
	case err == nil && !info.Mode().IsRegular():
		err = errors.New("is not a regular file")
	case err == nil && info.Size() > maxFileSize:
		err = errLarge
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

// fileError is why a file cannot be used: the text for the evidence, and for the log.
type fileError struct {
	what, file string
	cause      error
}

func (e *fileError) Error() string { return ErrNotSent.Error() + ": " + e.what }

// Unwrap includes the cause, such as a lack of descriptors.
func (e *fileError) Unwrap() []error {
	if e.cause == nil {
		return []error{ErrNotSent}
	}
	return []error{ErrNotSent, e.cause}
}

// Expiry returns when the first certificate of a file expires. A cached file is not read again.
func (f Files) Expiry(name string, c *ExpiryCache) (time.Time, error) {
	s, err := f.stamp(name)
	if err != nil {
		return time.Time{}, err
	}
	return c.Of(name, s.changed, s.size, func() ([]byte, error) { return f.read(name) })
}
