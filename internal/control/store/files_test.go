package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestDatasyncOfDeletedFile checks that syncing a deleted file fails, as its contents would be lost
// at the next start.
func TestDatasyncOfDeletedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	f, err := osFiles{}.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // of a test
	if err := f.Datasync(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Datasync(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, want that the file was deleted", err)
	}
}
