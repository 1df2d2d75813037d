package pins

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestForeignDirectory checks that a directory that loxilb did not create is neither removed nor
// used, and that its contents stay.
func TestForeignDirectory(t *testing.T) {
	t.Parallel()
	steps := map[string]func(dir string) error{
		"remove": Remove, "empty": Empty, "prepare": Prepare,
		"lock":          func(dir string) error { _, err := Acquire(dir); return err },
		"existing lock": func(dir string) error { _, err := AcquireExisting(dir); return err },
	}
	outside, inside := "is not in a BPF file system", "which loxilb did not make"
	for _, c := range []struct {
		parent string
		file   string // path below the directory
		want   string
		steps  []string
	}{
		{t.TempDir(), "home/notes", outside, []string{"remove", "empty", "prepare", "lock", "existing lock"}},
		{t.TempDir(), "maps/notes", outside, []string{"remove", "empty", "prepare", "lock", "existing lock"}},
		{scratch(t), "cilium/map", inside, []string{"remove", "empty", "prepare"}},
		{scratch(t), "maps/of-another-program", "was not made by loxilb", []string{"remove", "empty"}},
	} {
		file := filepath.Join(c.parent, c.file)
		if err := os.MkdirAll(file, 0o700); err != nil { // a BPF file system has no plain files
			t.Fatal(err)
		}
		for _, step := range c.steps {
			if err := steps[step](c.parent); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s of a directory with %s: %v, want %q", step, c.file, err, c.want)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s of a directory with %s: %v", step, c.file, err)
			}
		}
	}
	missing := filepath.Join(t.TempDir(), "a", "b")
	if _, err := Acquire(missing); err == nil || !strings.Contains(err.Error(), outside) {
		t.Errorf("got %v, want an error, outside in the error", err)
	}
	if _, err := os.Stat(filepath.Dir(missing)); !os.IsNotExist(err) {
		t.Errorf("a refused directory is made: %v", err)
	}
}
