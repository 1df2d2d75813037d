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

// Files is the directory of probes' files. API users choose the names, and the daemon reads the
// files as root. So it reads only regular files in this directory, and its evidence about them has
// no details.
type Files struct {
	Dir string
	// Compat is the directory of the existing loxilb's server.crt and server.key, which https
	// probes without a certificate show; empty: none.
	Compat string
	Log    *slog.Logger // logs the details that evidence omits
}

// maxFileSize bounds the size of a file.
const maxFileSize = 1 << 20

// fileVersion identifies a version of a file.
type fileVersion struct {
	changed time.Time
	size    int64
}

// contains reports whether a file is below the directory.
func (f Files) contains(name string) bool {
	_, ok := f.relative(name)
	return ok
}

// relative returns the name relative to the directory; false: the file is not below it.
func (f Files) relative(name string) (string, bool) {
	rel, err := filepath.Rel(f.Dir, name)
	return rel, err == nil && filepath.IsLocal(rel)
}

func (f Files) version(name string) (fileVersion, error) {
	file, info, err := f.open(name)
	if err != nil {
		return fileVersion{}, err
	}
	return fileVersion{info.ModTime(), info.Size()}, file.Close()
}

func (f Files) read(name string) ([]byte, error) {
	file, _, err := f.open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFileSize+1)) // the file may have grown since open
	if err == nil && len(content) > maxFileSize {
		err = errLarge
	}
	return content, err
}

var errLarge = fmt.Errorf("has more than %d bytes", maxFileSize)

// open opens a regular file. It refuses other files without blocking, such as a pipe without a
// writer.
func (f Files) open(name string) (*os.File, fs.FileInfo, error) {
	rel, ok := f.relative(name)
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

// fileError reports that a file cannot be used.
type fileError struct {
	what  string // for the evidence
	file  string // for the log
	cause error  // for the log; nil: unknown
}

func (e *fileError) Error() string { return ErrNotSent.Error() + ": " + e.what }

// Unwrap returns ErrNotSent and the cause: a lack of descriptors is handled in its own way.
func (e *fileError) Unwrap() []error {
	if e.cause == nil {
		return []error{ErrNotSent}
	}
	return []error{ErrNotSent, e.cause}
}

// Expiry returns the earliest expiry of the certificates in a file. It reads the file only if the
// cache does not have the result.
func (f Files) Expiry(name string, c *ExpiryCache) (time.Time, error) {
	s, err := f.version(name)
	if err != nil {
		return time.Time{}, err
	}
	return c.Of(name, s.changed, s.size, func() ([]byte, error) { return f.read(name) })
}
