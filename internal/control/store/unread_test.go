package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestUnread checks that the files that must be read do not change because of a start that ends
// before it has read them, or of one that finds the state locked.
func TestUnread(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	mark := func() *Unread {
		t.Helper()
		u, err := MarkUnread(dir)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	start := func() *Unread {
		t.Helper()
		u := mark()
		s := openStore(t, dir)
		if s.Snapshot().Revision() == 0 {
			if err := u.IncludeAll(); err != nil {
				t.Fatal(err)
			}
			mustCommit(t, s, "rest", put(web()))
		}
		closeStore(t, s)
		return u
	}
	for i := range 3 { // the first run ends after storing something
		if u := start(); !u.Since.IsZero() {
			t.Fatalf("start %d: since %v", i, u.Since)
		}
	}
	done := func(u *Unread) {
		t.Helper()
		if err := u.Done(); err != nil {
			t.Fatal(err)
		}
	}
	done(start())
	stored := LastWritten(dir)
	file := stored.Add(time.Nanosecond)
	for i := range 3 {
		u := start()
		if !u.Since.Equal(stored) || !file.After(u.Since) {
			t.Fatalf("start %d: unread since %v, want %v, when it was stored", i, u.Since, stored)
		}
		if now := LastWritten(dir); !now.After(stored) {
			t.Fatalf("opening leaves no trace: %v", now)
		}
	}
	done(start())
	if u := mark(); file.After(u.Since) {
		t.Error("a file that was read counts as unread")
	}
	if err := errors.Join(mark().Withdraw(), os.WriteFile(filepath.Join(dir, unreadName), []byte("invalid"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if u := mark(); !u.Since.Equal(LastWritten(dir)) {
		t.Errorf("with an invalid file, since %v", u.Since)
	}
	done(mark())
	s := openStore(t, dir)
	u := mark()
	if err := u.Withdraw(); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, s, "rest", put(dns()))
	closeStore(t, s)
	if u := mark(); !u.Since.Equal(LastWritten(dir)) {
		t.Errorf("after a start that was refused, since %v", u.Since)
	}
}
