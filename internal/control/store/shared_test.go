package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// sharedDir creates a directory that other users can read, with files of these names.
func sharedDir(t *testing.T, names ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "etc")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func modeOf(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

// TestLockOfSharedDirectory checks that a directory with files of others, such as /etc, keeps its
// mode: the daemon locks it by a file that others cannot lock, and a lock of the directory by
// others does not matter.
func TestLockOfSharedDirectory(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{{"passwd"}, {"passwd", snapshotName}, nil} {
		dir := sharedDir(t, names...)
		other, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close() //nolint:errcheck // of a test
		if err := unix.Flock(int(other.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		first, err := lockDir(osFiles{}, dir)
		if err != nil {
			t.Fatal(err)
		}
		if dirMode, fileMode := modeOf(t, dir), modeOf(t, filepath.Join(dir, lockName)); dirMode != 0o755 || fileMode != 0o600 {
			t.Errorf("%v: modes %o, %o", names, dirMode, fileMode)
		}
		if err := other.Close(); err != nil {
			t.Error(err)
		}
		// A second daemon is refused even if the directory now only has the daemon's files.
		for _, name := range names {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := lockDir(osFiles{}, dir); !errors.Is(err, ErrInUse) {
			t.Errorf("%v: a second daemon: %v", names, err)
		}
		if err := errors.Join(first.Unlock(), first.Close()); err != nil {
			t.Error(err)
		}
		again, err := lockDir(osFiles{}, dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLockClosesOwnDirectory checks that other users lose access to a directory that only has the
// daemon's files.
func TestLockClosesOwnDirectory(t *testing.T) {
	t.Parallel()
	dir := sharedDir(t, snapshotName, "users.json", journalName(7), "audit.jsonl.1", "kernel-objects")
	d, err := lockDir(osFiles{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	if mode := modeOf(t, dir); mode != 0o700 {
		t.Errorf("mode %o", mode)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
