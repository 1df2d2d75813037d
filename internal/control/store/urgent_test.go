package store

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// urgentTables returns tables of items and of urgent rules.
func urgentTables() []AnyTable {
	k := ruleKind(2)
	k.Urgent = true
	return []AnyTable{NewTable(itemKind()), NewTable(k)}
}

func openUrgent(files fileSystem, dir string) (*Store, error) {
	s, err := open(files, dir, slog.New(slog.DiscardHandler), urgentTables())
	if err == nil {
		s.loadRevisions()
	}
	return s, err
}

// TestUrgentWhenCallsFail makes each disk operation fail once, in each way. It checks that urgent
// changes succeed nevertheless, and are on disk after Close.
//
// P5
func TestUrgentWhenCallsFail(t *testing.T) {
	t.Parallel()
	script := []func(*Tx) error{
		put(web()), putRules(rule{Number: 1}), put(dns()), putRules(rule{Number: 1, Note: "b"}), putRules(rule{Number: 2}),
		deletesOf(ID{"rule", "1"}), put(web2()), putRules(rule{Number: 3}),
	}
	run := func(files *memFiles) {
		s, err := openUrgent(files, memDir)
		if err != nil {
			return // TestEveryCallFails checks failures of a start
		}
		for i, edit := range script {
			before := s.Snapshot()
			_, changed, err := s.Commit("rest", edit)
			onlyUrgent := !slices.Contains([]int{0, 2, 6}, i)
			if err != nil && (onlyUrgent || s.Snapshot() != before) {
				t.Fatalf("%s at call %d: commit %d of urgent changes (%v): %v", files.failedCall, files.failAt, i, onlyUrgent, err)
			}
			if err == nil && len(changed) == 0 {
				t.Fatalf("commit %d has changed nothing", i)
			}
			if i == 3 {
				s.disk.limit = 1 // the next commit begins a journal
			}
		}
		want := recordsOf(t, s.Snapshot())
		if err := s.Close(); err != nil && files.failedCall == "" {
			t.Fatal(err)
		}
		files.failAt = -1
		again, err := openUrgent(files, memDir)
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		// The last disk operations are those of Close: if one fails, the last commit may be
		// lost.
		if got := recordsOf(t, again.Snapshot()); got != want && again.Snapshot().Revision() != s.Snapshot().Revision()-1 {
			t.Fatalf("%s at call %d: the state is\n%swas\n%s", files.failedCall, files.failAt, got, want)
		}
	}
	clean := newMemFiles()
	run(clean)
	for at := range clean.calls {
		for _, how := range []fault{failBefore, failAfter, tear} {
			files := newMemFiles()
			files.failAt, files.fault, files.tearPart = at, how, 1
			run(files)
		}
	}
}

// TestUrgentOnAFullDisk fills a file system. It checks that urgent changes succeed and others are
// refused, even in one batch, and that the state is written, without another commit, once there is
// room.
//
// P5
func TestUrgentOnAFullDisk(t *testing.T) {
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
	s, err := openUrgent(osFiles{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	mustCommit(t, s, "rest", put(numbered(0, 1)))
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	for i := 1; ; i++ { // the last page of the journal has room
		if _, _, err := s.Commit("rest", put(numbered(i, 1))); err != nil {
			break
		}
	}
	count := items(s.Snapshot()).Len(s.Snapshot())
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if _, _, err := s.Commit("rest", putRules(rule{Number: i})); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			if _, _, err := s.Commit("rest", put(numbered(100+i, 100))); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("an item on a full disk: %v", err)
			}
		})
	}
	all.Wait()
	now := s.Snapshot()
	if rules, items := rules(now).Len(now), items(now).Len(now); rules != 20 || items != count {
		t.Fatalf("%d rules and %d items, want 20 and %d", rules, items, count)
	}
	if _, err := s.Unwritten(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the state is reported as stored: %v", err)
	}
	if got := s.Revisions()[0].Number; got != now.Revision() {
		t.Errorf("revision %d is the last that is remembered, and %d is current", got, now.Revision())
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(time.Minute)
	for now := range time.Tick(10 * time.Millisecond) {
		if _, err := s.Unwritten(); err == nil {
			break
		}
		if now.After(end) {
			t.Fatal("the state is not written although there is room")
		}
	}
	want := dump(now)
	again, err := openUrgent(osFiles{}, copyDir(t, dir)) // as after a crash
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	wantDump(t, again.Snapshot(), want)
}
