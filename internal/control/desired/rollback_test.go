package desired_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
)

// commitWaiting commits a service that is rolled back at a time unless it is confirmed.
func commitWaiting(t *testing.T, s *desired.State, line string, at time.Time) {
	t.Helper()
	wanted := service(t, line)
	if _, _, err := s.CommitBy(store.CommitOptions{Owner: "rest", Confirm: at}, func(tx *store.Tx) error { return s.Services.Put(tx, wanted) }); err != nil {
		t.Fatal(err)
	}
}

const (
	kept   = "10.0.0.1:80/tcp mode=default select=rr endpoints=192.168.0.1:80"
	undone = "10.0.0.2:80/tcp mode=default select=rr endpoints=192.168.0.1:80"
)

// TestRollBackIfDue checks that a deadline survives the process that set it, even if that was
// killed: nothing is closed here.
func TestRollBackIfDue(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	commitWaiting(t, s, kept, time.Time{})
	commitWaiting(t, s, undone, time.Now().Add(time.Hour))
	killed := copyOf(t, dir)
	again := open(t, killed)
	again.RollBackIfDue(slog.New(slog.DiscardHandler))
	if n := again.Services.Len(again.Snapshot()); n != 2 {
		t.Errorf("before its time: %d services", n)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Confirm(0); err != nil {
		t.Fatal(err)
	}
	commitWaiting(t, s, kept+" name=x", time.Now().Add(-time.Second)) // as if the machine had been off
	killed = copyOf(t, dir)
	again = open(t, killed)
	again.RollBackIfDue(slog.New(slog.DiscardHandler))
	if n := len(again.Services.ByName(again.Snapshot(), "x")); n != 0 {
		t.Errorf("after the deadline: %d services have an unconfirmed change", n)
	}
	if n := again.Services.Len(again.Snapshot()); n != 2 {
		t.Errorf("a confirmed change was rolled back: %d services", n)
	}
	if w, waits := again.Waiting(); waits {
		t.Errorf("%+v still waits", w)
	}
}

// TestRollBackWhenDue checks that a running process rolls back by itself, except for confirmed
// changes, and reports each.
func TestRollBackWhenDue(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	outcomes := make(chan string, 9)
	report := func(r *store.Revision, f desired.Outcome) { outcomes <- fmt.Sprint(r.Number, " ", f) }
	go func() { defer close(done); s.RollBackWhenDue(ctx, slog.New(slog.DiscardHandler), report) }()
	defer func() { cancel(); <-done }()
	wantOutcome := func(number int, want desired.Outcome) {
		t.Helper()
		select {
		case got := <-outcomes:
			if got != fmt.Sprint(number, " ", want) {
				t.Fatalf("the number and outcome of the revision are %s, want %d %d", got, number, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("no event, want %d %d", number, want)
		}
	}
	commitWaiting(t, s, kept, time.Now().Add(time.Hour))
	wantOutcome(1, desired.Waiting)
	if _, err := s.Confirm(0); err != nil {
		t.Fatal(err)
	}
	wantOutcome(1, desired.Resolved)
	if r, ok := s.LastRollback(); ok {
		t.Errorf("%+v rolled back a change", r)
	}
	commitWaiting(t, s, undone, time.Now().Add(100*time.Millisecond))
	wantOutcome(2, desired.Waiting)
	wantOutcome(2, desired.RolledBack)
	if r, ok := s.LastRollback(); !ok || r.Number != 3 {
		t.Errorf("%+v rolled it back", r)
	}
	list := 0
	for one := range s.Services.All(s.Snapshot()) {
		list++
		if one.String() != kept {
			t.Errorf("%s was not rolled back", one)
		}
	}
	if list != 1 {
		t.Errorf("%d services", list)
	}
}

// TestLastRollbackAfterConfirm checks that a second confirmation does not report an older revision
// that was rolled back.
func TestLastRollbackAfterConfirm(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	commitWaiting(t, s, undone, time.Now().Add(-time.Second))
	s.RollBackIfDue(slog.New(slog.DiscardHandler))
	if r, ok := s.LastRollback(); !ok || r.Number != 2 {
		t.Fatalf("revision %d rolled back the first one, want 2", r.Number)
	}
	commitWaiting(t, s, kept, time.Now().Add(time.Hour))
	if _, err := s.Confirm(0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Confirm(0); !errors.Is(err, store.ErrPending) {
		t.Errorf("the second confirm: %v", err)
	}
	if r, ok := s.LastRollback(); ok {
		t.Errorf("revision %d is reported after revision 3 was confirmed", r.Number)
	}
	// A later rollback is reported again.
	commitWaiting(t, s, undone, time.Now().Add(-time.Second))
	s.RollBackIfDue(slog.New(slog.DiscardHandler))
	if r, ok := s.LastRollback(); !ok || r.Number != 5 {
		t.Errorf("revision %d rolled back the last one, want 5", r.Number)
	}
}

// copyOf returns a copy of what a killed process would leave.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}
