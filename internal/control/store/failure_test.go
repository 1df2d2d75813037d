package store

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// block makes it impossible to write a file, by a directory with its name.
func block(t *testing.T, dir, name string) (unblock func()) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Join(path, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.RemoveAll(path); err != nil {
			t.Error(err)
		}
	}
}

// syncBuffer collects log lines of several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func openLogged(t *testing.T, dir string) (*Store, *syncBuffer) {
	t.Helper()
	logged := new(syncBuffer)
	s, err := Open(dir, slog.New(slog.NewTextHandler(logged, nil)), NewTable(itemKind()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, logged
}

// TestOpenOfAnUnwritableDirectory checks that a start succeeds if the disk cannot be written.
func TestOpenOfAnUnwritableDirectory(t *testing.T) {
	t.Parallel()
	dir, states := threeItems(t, true)
	flip(t, dir, snapshotName, 3)
	want := without(states[3], "item-00002")
	unblock := block(t, dir, journalName(3)+tempSuffix)

	s, logged := openLogged(t, dir)
	wantDump(t, s.Snapshot(), want)
	if !strings.Contains(logged.String(), "state directory cannot be written") {
		t.Errorf("logged %s", logged)
	}
	for range 2 {
		if _, _, err := s.Commit("rest", put(web())); err == nil {
			t.Error("a commit is confirmed without a journal")
		}
		wantDump(t, s.Snapshot(), want)
	}
	unblock()
	mustCommit(t, s, "rest", put(web()))
	want = dump(s.Snapshot())
	closeStore(t, s)
	wantDump(t, openStore(t, dir).Snapshot(), want)
	if aside := asideFiles(t, dir); len(aside) != 1 {
		t.Errorf("%v set aside", aside)
	}

	empty := t.TempDir() // a new directory must be writable
	block(t, empty, journalName(0)+tempSuffix)
	if _, err := Open(empty, slog.New(slog.DiscardHandler), NewTable(itemKind())); err == nil {
		t.Error("an unwritable new directory is accepted")
	}
}

// TestConfirmationAfterAnUnwritableStart checks that a change that awaits confirmation can be
// confirmed or rolled back once the disk can be written again, without another change before, and
// that earlier revisions stay available.
func TestConfirmationAfterAnUnwritableStart(t *testing.T) {
	t.Parallel()
	for name, resolve := range map[string]func(*Store, uint64) error{
		"confirm": func(s *Store, number uint64) error { _, err := s.Confirm(number); return err },
		"undo": func(s *Store, number uint64) error {
			_, _, err := s.Commit("rest", func(tx *Tx) error { _, err := tx.Undo(number); return err })
			return err
		},
	} {
		dir := t.TempDir()
		s := openStore(t, dir)
		mustCommit(t, s, "rest", put(dns()))
		number, _, err := s.CommitBy(CommitOptions{Owner: "rest", Confirm: time.Now().Add(time.Hour)}, put(web()))
		if err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
		unblock := block(t, dir, snapshotName+tempSuffix)
		s, logged := openLogged(t, dir)
		if err := resolve(s, number); err == nil {
			t.Errorf("%s: no error while the disk cannot be written", name)
		}
		unblock()
		if err := resolve(s, number); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if w, waits := s.Waiting(); waits {
			t.Errorf("%s: revision %d still waits", name, w.Number)
		}
		if strings.Contains(logged.String(), "revision not written") {
			t.Errorf("%s: logged %s", name, logged)
		}
		closeStore(t, s)
		s = openStore(t, dir)
		if _, waits := s.Waiting(); waits {
			t.Errorf("%s: a revision waits after a restart", name)
		}
		if _, _, err := s.Commit("rest", rollBackTo(0)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCompactionFails(t *testing.T) {
	t.Parallel()
	for _, step := range []struct{ file, says string }{
		{snapshotName + tempSuffix, "state snapshot failed, the journals keep everything"},
		{journalName(1) + tempSuffix, "new state journal failed, the old one stays in use"},
	} {
		dir := t.TempDir()
		s, logged := openLogged(t, dir)
		unblock := block(t, dir, step.file)
		s.disk.limit = 1
		for i := range 3 {
			mustCommit(t, s, "rest", put(numbered(i, 1)))
		}
		s.disk.background.Wait()
		if strings.Count(logged.String(), "level=ERROR") != 1 || !strings.Contains(logged.String(), step.says) {
			t.Errorf("logged %s", logged)
		}
		unblock()
		want := dump(s.Snapshot())
		wantDump(t, openStore(t, copyDir(t, dir)).Snapshot(), want)
		s.disk.limit = 1 // and the next one works
		mustCommit(t, s, "rest", put(web()))
		s.disk.background.Wait()
		want = dump(s.Snapshot())
		if names := files(t, dir); len(names) != 2 || names[0] != journalName(4) {
			t.Errorf("got %v, want 2 elements, names[0] == journalName(4)", names)
		}
		closeStore(t, s)
		wantDump(t, openStore(t, dir).Snapshot(), want)
	}
}

// TestFullDisk fills a file system with commits, and checks that each of them is either refused, or
// confirmed and not lost.
//
// P5
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := openStore(t, dir)
	refused := 0
	for i := range 400 {
		before := s.Snapshot()
		_, _, err := s.Commit("rest", put(numbered(i, 100)))
		if err == nil {
			continue
		}
		refused++
		if !errors.Is(err, syscall.ENOSPC) || s.Snapshot() != before {
			t.Fatalf("got %v, want the error syscall.ENOSPC and the former snapshot", err)
		}
	}
	if refused == 0 || items(s.Snapshot()).Len(s.Snapshot()) == 0 {
		t.Fatalf("%d refused, %d stored", refused, items(s.Snapshot()).Len(s.Snapshot()))
	}
	want := dump(s.Snapshot())
	closeStore(t, s)
	s = openStore(t, dir) // starts nevertheless
	wantDump(t, s.Snapshot(), want)
	for range 2 {
		if _, _, err := s.Commit("rest", put(numbered(500, 1000))); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("got %v, want the error syscall.ENOSPC", err)
		}
	}
	if err := syscall.Mount("none", dir, "", syscall.MS_REMOUNT, "size=4m"); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, s, "rest", put(numbered(500, 1000)))
	want = dump(s.Snapshot())
	closeStore(t, s)
	wantDump(t, openStore(t, dir).Snapshot(), want)
}

// TestEditThatExits checks that the store stays usable after an edit that ends its goroutine.
func TestEditThatExits(t *testing.T) {
	t.Parallel()
	s := openStore(t, "")
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _, _ = s.Commit("rest", func(*Tx) error { runtime.Goexit(); return nil })
	}()
	<-done
	if rev := mustCommit(t, s, "rest", put(web())); rev != 1 {
		t.Errorf("revision %d", rev)
	}
}
