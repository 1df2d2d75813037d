package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/test/race"
)

// files returns the names of the files in a directory, without times in names, and without files
// that are not part of the state.
func files(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() == lockName || e.Name() == revisionsName {
			continue
		}
		name, _, damaged := strings.Cut(e.Name(), ".damaged-")
		if damaged {
			name += ".damaged"
		}
		names = append(names, name)
	}
	return names
}

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

// copyDir returns a copy of a directory, as a crash would leave it.
func copyDir(t testing.TB, dir string) string {
	t.Helper()
	c := t.TempDir()
	if err := os.CopyFS(c, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSecondDaemonIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	_, err := Open(dir, slog.Default(), NewTable(itemKind()))
	want := fmt.Sprintf("state directory %s is in use by another loxilb (process %d (store.test)): stop it, or use another state directory", dir, os.Getpid())
	if !errors.Is(err, ErrInUse) || err.Error() != want {
		t.Errorf("Open fails with %v, want %s", err, want)
	}
	closeStore(t, s)
	openStore(t, dir)
}

func TestOpenFailsClearly(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, filepath.Dir(file), "file", "")
	_, err := Open(file, slog.Default(), NewTable(itemKind()))
	if err == nil || !strings.Contains(err.Error(), "make the state directory: mkdir "+file+": not a directory") {
		t.Errorf("got %v, want an error that names the file in place of the state directory", err)
	}
}

// TestCrashWhileAppending checks a crash at each byte of a commit: the journal ends within the
// line.
func TestCrashWhileAppending(t *testing.T) {
	t.Parallel()
	race.Skip(t)
	dir := t.TempDir()
	s := openStore(t, dir)
	mustCommit(t, s, "rest", put(web()))
	before, from := dump(s.Snapshot()), int(s.disk.size)
	mustCommit(t, s, "rest", put(dns()))
	after, journal := dump(s.Snapshot()), readFile(t, dir, journalName(0))
	closeStore(t, s)
	for n := from; n <= len(journal); n++ {
		crashed := t.TempDir()
		writeFile(t, crashed, journalName(0), journal[:n])
		want := before
		if n == len(journal) {
			want = after
		}
		s := openStore(t, crashed)
		wantDump(t, s.Snapshot(), want)
		mustCommit(t, s, "rest", put(numbered(1, 1)))
		want = dump(s.Snapshot())
		closeStore(t, s)
		wantDump(t, openStore(t, crashed).Snapshot(), want)
		for _, name := range files(t, crashed) {
			if strings.Contains(name, "damaged") {
				t.Fatalf("a line that ends at byte %d counts as damage", n)
			}
		}
	}
}

func TestDiskFailureLeavesTheStateAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	mustCommit(t, s, "rest", put(web()))
	before := dump(s.Snapshot())

	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.disk.journal.Close()
	s.disk.journal = osFile{full}
	changed := s.Changed()
	rev, _, err := s.Commit("rest", put(dns()))
	const want = "write the state, which stays at revision 1: append to the journal: write /dev/full: no space left on device"
	if rev != 0 || err == nil || err.Error() != want {
		t.Errorf("revision %d, %v, want %s", rev, err, want)
	}
	wantDump(t, s.Snapshot(), before)
	select {
	case <-changed:
		t.Error("a failed commit is announced")
	default:
	}
	crashed := copyDir(t, dir)
	wantDump(t, openStore(t, crashed).Snapshot(), before)

	// The disk works again: commits continue in a new journal.
	mustCommit(t, s, "rest", put(dns()))
	after := dump(s.Snapshot())
	wantDump(t, openStore(t, copyDir(t, dir)).Snapshot(), after)
	closeStore(t, s)
	wantDump(t, openStore(t, dir).Snapshot(), after)
}

// TestLeftoverOfAFailedCommit checks that the remains of a failed append, which could not be
// truncated, are ignored if a newer journal follows.
func TestLeftoverOfAFailedCommit(t *testing.T) {
	t.Parallel()
	for _, cut := range []int{0, 1, 40} {
		dir := t.TempDir()
		s := openStore(t, dir)
		mustCommit(t, s, "rest", put(web()))
		lines := readFile(t, dir, journalName(0))
		mustCommit(t, s, "rest", put(numbered(1, 1)))
		failed := strings.TrimPrefix(readFile(t, dir, journalName(0)), lines)
		closeStore(t, s)

		dir = t.TempDir()
		writeFile(t, dir, journalName(0), lines)
		s = openStore(t, dir)
		s.disk.unusable = true
		mustCommit(t, s, "rest", put(dns()))
		want := dump(s.Snapshot())
		crashed := copyDir(t, dir)
		writeFile(t, crashed, journalName(0), lines+failed[:len(failed)-cut])
		if err := os.Remove(filepath.Join(crashed, snapshotName)); err != nil {
			t.Fatal(err)
		}
		wantDump(t, openStore(t, crashed).Snapshot(), want)
		if diff := cmp.Diff([]string{journalName(2), snapshotName}, files(t, crashed)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
}

func TestCompaction(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	s.disk.limit = 1
	mustCommit(t, s, "rest", put(web()))
	s.disk.background.Wait()
	if diff := cmp.Diff([]string{journalName(1), snapshotName}, files(t, dir)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	mustCommit(t, s, "rest", put(dns()))
	want := dump(s.Snapshot())
	if s.disk.limit != minJournal {
		t.Errorf("the next journal is due at %d bytes", s.disk.limit)
	}
	closeStore(t, s)
	wantDump(t, openStore(t, dir).Snapshot(), want)
}

// TestCrashWhileCompacting checks a crash after each step of a compaction, with commits before and
// after.
func TestCrashWhileCompacting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	d := s.disk
	mustCommit(t, s, "rest", put(web()))
	mustCommit(t, s, "rest", put(dns()))
	head := s.Snapshot()
	check := func(step string) {
		t.Helper()
		want := dump(s.Snapshot())
		crashed := copyDir(t, dir)
		writeFile(t, crashed, snapshotName+tempSuffix, "half a")
		writeFile(t, crashed, journalName(99)+tempSuffix, "")
		again := openStore(t, crashed)
		if got := dump(again.Snapshot()); got != want {
			t.Errorf("%s: %s, want %s", step, got, want)
		}
		if diff := cmp.Diff([]string{journalName(s.Snapshot().Revision()), snapshotName}, files(t, crashed)); diff != "" {
			t.Errorf("%s: -want +got\n%s", step, diff)
		}
	}
	steps := []struct {
		name string
		do   func() error
	}{
		{"new journal", func() error { return d.newJournal(head.revision, bareVersion) }},
		{"commit to it", func() error { _, _, err := s.Commit("rest", put(numbered(3, 3))); return err }},
		{"snapshot", func() error { _, err := d.writeSnapshot(head); return err }},
		{"another commit", func() error {
			_, _, err := s.Commit("rest", func(tx *Tx) error { return tx.Delete(web().id()) })
			return err
		}},
		{"old journal removed", func() error {
			return d.removeJournals(func(r uint64) bool { return r < head.revision })
		}},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		check(step.name)
	}
}

func TestConcurrentCommits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	s.disk.limit = 4096 // causes several compactions
	const writers, each = 16, 60
	stop := make(chan struct{})
	var readers, group sync.WaitGroup
	readers.Go(func() {
		for last := uint64(0); ; {
			changed := s.Changed()
			snap, _, _ := s.Since(last)
			if snap.Revision() < last {
				t.Errorf("revision %d after %d", snap.Revision(), last)
			}
			last = snap.Revision()
			select {
			case <-stop:
				return
			case <-changed:
			}
		}
	})
	for w := range writers {
		group.Go(func() {
			owner := fmt.Sprint("writer-", w)
			for i := range each {
				one := numbered(w*each+i, 2)
				rev, _, err := s.Commit(owner, put(one))
				if err != nil {
					t.Error(err)
					return
				}
				if got, ok := items(s.Snapshot()).Get(s.Snapshot(), one.Name); !ok || !reflect.DeepEqual(got, one) || s.Snapshot().Revision() < rev {
					t.Errorf("a commit is not seen after it: %v", got)
				}
			}
		})
	}
	group.Wait()
	close(stop)
	readers.Wait()
	want := dump(s.Snapshot())
	if rev := s.Snapshot().Revision(); rev != writers*each {
		t.Errorf("revision %d after %d commits", rev, writers*each)
	}
	closeStore(t, s)
	wantDump(t, openStore(t, dir).Snapshot(), want)
}

// TestStartWithoutChanges checks that a start does not write the snapshot again if nothing has
// changed.
func TestStartWithoutChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	mustCommit(t, s, "test", put(web()))
	closeStore(t, s)
	closeStore(t, openStore(t, dir)) // writes the journal into a snapshot
	path := filepath.Join(dir, "snapshot.jsonl")
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(files(t, dir), err)
	}
	s = openStore(t, dir)
	defer closeStore(t, s)
	after, err := os.Stat(path)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the snapshot was written again: %v", err)
	}
}
