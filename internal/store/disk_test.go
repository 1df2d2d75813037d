package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// files lists a directory by kind: what is made of a name by its time is not shown.
func files(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
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

// copyDir is the directory as a crash at this moment would leave it.
func copyDir(t testing.TB, dir string) string {
	t.Helper()
	c := t.TempDir()
	if err := os.CopyFS(c, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return c
}

// wantFile compares a file of dir with its namesake in testdata; UPDATE=1 writes that anew.
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

// The written form is a promise: every later version must read it.
func TestWrittenForm(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	mustCommit(t, s, "rest", put(service(t, web), service(t, dns), service(t, ranged)))
	mustCommit(t, s, "kube", put(numbered(1, 1)))
	mustCommit(t, s, "kube", func(tx *Tx) error { return tx.Delete(numbered(1, 0).Key) })
	wantFile(t, dir, journalName(0), "journal.jsonl")
	closeStore(t, s)
	openStore(t, dir)
	wantFile(t, dir, snapshotName, "snapshot.jsonl")
	if diff := cmp.Diff([]string{journalName(3), snapshotName}, files(t, dir)); diff != "" {
		t.Errorf("files: -want +got\n%s", diff)
	}
}

// What version 1 wrote, before there were ranges, marks and sources, is read as it was meant.
func TestVersion1(t *testing.T) {
	t.Parallel()
	for golden, name := range map[string]string{"journal-1.jsonl": journalName(0), "snapshot-1.jsonl": snapshotName} {
		dir := t.TempDir()
		writeFile(t, dir, name, readFile(t, "testdata", golden))
		s := openStore(t, dir)
		if got, ok := s.Snapshot().Get(service(t, web).Key); !ok || !got.Equal(service(t, web)) || s.Snapshot().Len() != 2 {
			t.Errorf("%s: %d services, %v", golden, s.Snapshot().Len(), got)
		}
	}
}

func TestSecondDaemonIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	_, err := Open(dir, slog.Default())
	want := "state directory " + dir + " is in use by another loxilb: stop that one, or give this one another directory"
	if !errors.Is(err, ErrInUse) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	closeStore(t, s)
	openStore(t, dir)
}

func TestOpenFailsClearly(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, filepath.Dir(file), "file", "")
	_, err := Open(file, slog.Default())
	if err == nil || !strings.Contains(err.Error(), "make the state directory: mkdir "+file+": not a directory") {
		t.Error(err)
	}
}

// Every crash while a commit is appended leaves a journal that ends somewhere in its line.
func TestCrashWhileAppending(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	mustCommit(t, s, "rest", put(service(t, web)))
	before, from := dump(s.Snapshot()), int(s.disk.size)
	mustCommit(t, s, "rest", put(service(t, dns)))
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
				t.Fatalf("cut at byte %d is called damage", n)
			}
		}
	}
}

func TestDiskFailureLeavesTheStateAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	mustCommit(t, s, "rest", put(service(t, web)))
	before := dump(s.Snapshot())

	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.disk.journal.Close()
	s.disk.journal = full
	changed := s.Changed()
	rev, err := s.Commit("rest", put(service(t, dns)))
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

	// The disk is well again: commits go on, in a new journal.
	mustCommit(t, s, "rest", put(service(t, dns)))
	after := dump(s.Snapshot())
	wantDump(t, openStore(t, copyDir(t, dir)).Snapshot(), after)
	closeStore(t, s)
	wantDump(t, openStore(t, dir).Snapshot(), after)
}

// What a failed append has left, and could not cut, is not read when a newer journal follows.
func TestLeftoverOfAFailedCommit(t *testing.T) {
	t.Parallel()
	for _, cut := range []int{0, 1, 40} {
		dir := t.TempDir()
		s := openStore(t, dir)
		mustCommit(t, s, "rest", put(service(t, web)))
		lines := readFile(t, dir, journalName(0))
		mustCommit(t, s, "rest", put(numbered(1, 1)))
		failed := strings.TrimPrefix(readFile(t, dir, journalName(0)), lines)
		closeStore(t, s)

		dir = t.TempDir()
		writeFile(t, dir, journalName(0), lines)
		s = openStore(t, dir)
		s.disk.broken = true
		mustCommit(t, s, "rest", put(service(t, dns)))
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
	mustCommit(t, s, "rest", put(service(t, web)))
	s.disk.background.Wait()
	if diff := cmp.Diff([]string{journalName(1), snapshotName}, files(t, dir)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	mustCommit(t, s, "rest", put(service(t, dns)))
	want := dump(s.Snapshot())
	if s.disk.limit != minJournal {
		t.Errorf("the next journal is due at %d bytes", s.disk.limit)
	}
	closeStore(t, s)
	wantDump(t, openStore(t, dir).Snapshot(), want)
}

// The steps of a compaction, each with a crash after it, with commits before and after.
func TestCrashWhileCompacting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	d := s.disk
	mustCommit(t, s, "rest", put(service(t, web)))
	mustCommit(t, s, "rest", put(service(t, dns)))
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
		{"new journal", func() error { return d.newJournal(head.revision) }},
		{"commit to it", func() error { _, err := s.Commit("rest", put(numbered(3, 3))); return err }},
		{"snapshot", func() error { return d.writeSnapshot(head) }},
		{"another commit", func() error {
			_, err := s.Commit("rest", func(tx *Tx) error { return tx.Delete(service(t, web).Key) })
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
	s.disk.limit = 4096 // several compactions meanwhile
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
				rev, err := s.Commit(owner, put(one))
				if err != nil {
					t.Error(err)
					return
				}
				if got, ok := s.Snapshot().Get(one.Key); !ok || !got.Equal(one) || s.Snapshot().Revision() < rev {
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
