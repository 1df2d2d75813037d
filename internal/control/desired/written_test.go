package desired_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
)

const (
	snapshotFile = "snapshot.jsonl"
	firstJournal = "journal-00000000000000000000.jsonl"
)

func readFile(t testing.TB, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func writeFile(t testing.TB, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// wantFile compares a file of dir with the file of the same name in testdata; UPDATE=1 rewrites
// that.
func wantFile(t *testing.T, dir, name, golden string) {
	t.Helper()
	got := readFile(t, dir, name)
	if os.Getenv("UPDATE") != "" {
		writeFile(t, "testdata", golden, got)
	}
	if diff := cmp.Diff(readFile(t, "testdata", golden), got); diff != "" {
		t.Errorf("%s: -want +got\n%s", name, diff)
	}
}

// stateDir creates a directory that only the daemon can access: in others the lock is a file.
func stateDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestWrittenForm checks the stored form, which every later version must read.
func TestWrittenForm(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	s := open(t, dir)
	mustCommit(t, s, "rest", put(s, service(t, web), service(t, dns), service(t, ranged)))
	mustCommit(t, s, "kube", put(s, numbered(1, 1)))
	mustCommit(t, s, "kube", func(tx *store.Tx) error { return s.Services.Delete(tx, numbered(1, 0).Key) })
	wantFile(t, dir, firstJournal, "journal.jsonl")
	closeState(t, s)
	open(t, dir)
	wantFile(t, dir, snapshotFile, "snapshot.jsonl")
	if diff := cmp.Diff([]string{"journal-00000000000000000003.jsonl", snapshotFile}, filesOf(t, dir)); diff != "" {
		t.Errorf("files: -want +got\n%s", diff)
	}
}

// TestOlderFiles checks that files of earlier versions of loxilb keep their meaning: version 1,
// before ranges, marks and sources, and version 2, before objects had versions.
func TestOlderFiles(t *testing.T) {
	t.Parallel()
	first := "rest: " + web + "\n"
	last := "rest: " + dns + "\n"
	for _, c := range []struct{ golden, name, want string }{
		{"journal-1.jsonl", firstJournal, "revision 3, 2 services, 3 endpoints\n" + first + last},
		{"snapshot-1.jsonl", snapshotFile, "revision 3, 2 services, 3 endpoints\n" + first + last},
		{"journal-2.jsonl", firstJournal, "revision 3, 3 services, 4 endpoints\n" + first + "rest: " + ranged + "\n" + last},
		{"snapshot-2.jsonl", snapshotFile, "revision 3, 3 services, 4 endpoints\n" + first + "rest: " + ranged + "\n" + last},
	} {
		dir := stateDir(t)
		writeFile(t, dir, c.name, readFile(t, "testdata", c.golden))
		s := open(t, dir)
		wantDump(t, s, c.want)
		version := uint64(3) // a snapshot does not contain versions
		if c.name == firstJournal {
			version = 1
		}
		if meta, _ := s.Snapshot().Meta(desired.ServiceID(service(t, web).Key)); meta != (store.Meta{Owner: "rest", Version: version}) {
			t.Errorf(`%s: got %+v, want store.Meta{Owner: "rest", Version: version}`, c.golden, meta)
		}
	}
}

func filesOf(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() == "revisions.jsonl" {
			continue // not part of the state
		}
		names = append(names, e.Name())
	}
	return names
}
