package store

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loxilb/test/race"
)

// content returns a state as text, without the revision and the versions, which a rollback does not
// restore.
func content(s *Snapshot) string {
	var b strings.Builder
	for one := range items(s).All(s) {
		meta, _ := s.Meta(one.id())
		fmt.Fprintf(&b, "%s: %s %q %q\n", meta.Owner, one.Name, one.Label, one.Parts)
	}
	for u := range s.Unknown() {
		fmt.Fprintf(&b, "%s: %s format %d %s\n", u.Owner, u.ID, u.Format, u.Object)
	}
	return b.String()
}

func rollBackTo(number uint64) func(*Tx) error {
	return func(tx *Tx) error {
		_, err := tx.RollBackTo(number, func(_, _ any) bool { return false })
		return err
	}
}

// TestRollBackTo checks that a rollback to any available revision restores its state, also after
// restarts.
func TestRollBackTo(t *testing.T) {
	t.Parallel()
	race.Skip(t)
	dir := t.TempDir()
	s := openStore(t, dir)
	random := rand.New(rand.NewPCG(1, 2))
	was := map[uint64]string{0: content(s.Snapshot())}
	for range 300 {
		now := s.Snapshot().Revision()
		var err error
		switch random.IntN(8) {
		case 0:
			to := now - min(now, uint64(random.IntN(maxRevisions)))
			if _, _, err = s.Commit("rest", rollBackTo(to)); err != nil {
				t.Fatal(err)
			}
			if got := content(s.Snapshot()); got != was[to] {
				t.Fatalf("after a rollback to %d from %d the state is\n%sand was\n%s", to, now, got, was[to])
			}
		case 1:
			closeStore(t, s)
			s = openStore(t, dir)
		default:
			_, _, err = s.Commit("rest", func(tx *Tx) error {
				for range 1 + random.IntN(40) {
					one := numbered(random.IntN(60), random.IntN(4))
					one.Label = fmt.Sprint(random.IntN(3))
					if random.IntN(3) == 0 {
						_ = tx.Delete(one.id()) // does not exist
					} else if err := items(tx.base).Put(tx, one); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		was[s.Snapshot().Revision()] = content(s.Snapshot())
	}
	if n := len(s.Revisions()); n != maxRevisions {
		t.Errorf("%d revisions are remembered", n)
	}
	last := s.Snapshot().Revision()
	_, _, err := s.Commit("rest", rollBackTo(last-maxRevisions-1))
	want := fmt.Sprintf("revision %d not found (available: %d-%d)", last-maxRevisions-1, last-maxRevisions+1, last)
	if !errors.Is(err, ErrForgotten) || err.Error() != want {
		t.Errorf("a rollback to a forgotten revision fails with %v, want %s", err, want)
	}
	if _, _, err := s.Commit("rest", rollBackTo(last+1)); !errors.Is(err, ErrForgotten) {
		t.Errorf("a rollback to a future revision: %v", err)
	}
}

// TestUndo checks that a commit that waits for confirmation can be undone, and that objects that
// were changed again meanwhile stay.
func TestUndo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	mustCommit(t, s, "rest", put(web(), dns()))
	deadline := time.Now().Add(time.Minute).UTC().Truncate(time.Millisecond)
	by := CommitOptions{Owner: "rest", Author: Author{Who: "ann", From: "10.0.0.1", Doing: "apply"}, Confirm: deadline}
	number, _, err := s.CommitBy(by, func(tx *Tx) error { return errors.Join(put(web2(), numbered(1, 1))(tx), tx.Delete(dns().id())) })
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.CommitBy(by, put(numbered(2, 1))); !errors.Is(err, ErrPending) {
		t.Errorf("a second one that waits: %v", err)
	}
	mustCommit(t, s, "rest", put(numbered(1, 2))) // another author
	for range 2 * maxRevisions {                  // a waiting revision is not forgotten
		mustCommit(t, s, "kube", put(numbered(3, int(s.Snapshot().Revision()))))
	}
	for range 2 { // also after a restart
		w, ok := s.Waiting()
		if !ok || w.Number != number || !w.Confirm.Equal(deadline) || w.Who != "ann" || w.Created+w.Changed+w.Deleted != 3 {
			t.Fatalf("got %+v %v, want ok, w.Number == number, w.Confirm == deadline, "+
				`w.Who == "ann", w.Created+w.Changed+w.Deleted == 3`,
				w, ok)
		}
		closeStore(t, s)
		s = openStore(t, dir)
	}
	var left []ID
	if _, _, err := s.Commit("loxilb", func(tx *Tx) (err error) { left, err = tx.Undo(number); return err }); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(left) != "[item item-00001]" {
		t.Errorf("the objects that the undo left are %v", left)
	}
	for range 2 { // the owners are kept, also after a restart
		got := content(s.Snapshot())
		for _, one := range []item{web(), dns(), numbered(1, 2)} {
			if line := fmt.Sprintf("rest: %s %q %q\n", one.Name, one.Label, one.Parts); !strings.Contains(got, line) {
				t.Errorf("%s is not in\n%s", line, got)
			}
		}
		closeStore(t, s)
		s = openStore(t, dir)
	}
	for range 2 {
		if w, ok := s.Waiting(); ok {
			t.Errorf("%+v still waits", w)
		}
		if n := len(s.Revisions()); n != maxRevisions {
			t.Errorf("%d revisions", n)
		}
		closeStore(t, s)
		s = openStore(t, dir)
	}
}

func TestConfirm(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	if _, err := s.Confirm(0); !errors.Is(err, ErrPending) {
		t.Errorf("nothing waits: %v", err)
	}
	number, _, err := s.CommitBy(CommitOptions{Owner: "rest", Confirm: time.Now().Add(time.Hour)}, put(web()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Confirm(number + 1); !errors.Is(err, ErrConfirmed) {
		t.Errorf("another one: %v", err)
	}
	if got, err := s.Confirm(0); err != nil || got != number {
		t.Errorf("got %d %v, want no error, %d", got, err, number)
	}
	for range 2 {
		if w, ok := s.Waiting(); ok {
			t.Errorf("%+v still waits", w)
		}
		closeStore(t, s)
		s = openStore(t, dir)
	}
}

// TestRevisionsDamaged checks that damage to the file of revisions only prevents rollbacks.
func TestRevisionsDamaged(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(path string) error{
		"gone":  os.Remove,
		"short": func(path string) error { return os.Truncate(path, 150) },
		"older": func(path string) error { return os.WriteFile(path, []byte(`{"crc":"x"}`+"\n"), 0o600) },
		"a directory": func(path string) error {
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
		},
	} {
		dir := t.TempDir()
		s := openStore(t, dir)
		mustCommit(t, s, "rest", put(web()))
		mustCommit(t, s, "rest", put(dns()))
		want := dump(s.Snapshot())
		closeStore(t, s)
		if err := damage(filepath.Join(dir, revisionsName)); err != nil {
			t.Fatal(err)
		}
		s = openStore(t, dir)
		wantDump(t, s.Snapshot(), want)
		if _, _, err := s.Commit("rest", rollBackTo(0)); !errors.Is(err, ErrForgotten) {
			t.Errorf("%s: got %v, want the error ErrForgotten", name, err)
		}
		mustCommit(t, s, "rest", put(web2()))
		if _, _, err := s.Commit("rest", rollBackTo(2)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPreview(t *testing.T) {
	t.Parallel()
	s := openStore(t, "")
	mustCommit(t, s, "rest", put(web(), dns()))
	want := dump(s.Snapshot())
	before, after, changed, err := s.Preview(CommitOptions{Owner: "rest"}, func(tx *Tx) error { return errors.Join(put(web2())(tx), tx.Delete(dns().id())) })
	if err != nil || fmt.Sprint(changed) != "[item dns item web]" || dump(before) != want || dump(after) == want {
		t.Errorf("got %v %v %s %s, want changes of dns and web, from the wanted state to another one", err, changed, dump(before), dump(after))
	}
	wantDump(t, s.Snapshot(), want)
	if n := len(s.Revisions()); n != 1 {
		t.Errorf("%d revisions", n)
	}
}

// TestRevisionsWhileOneWaits checks that, while a change waits for confirmation, any number of
// commits neither grows the list of revisions and the file, nor rewrites the file each time. The
// waiting change can still be undone.
func TestRevisionsWhileOneWaits(t *testing.T) {
	t.Parallel()
	race.Skip(t)
	dir := t.TempDir()
	s := openStore(t, dir)
	number, _, err := s.CommitBy(CommitOptions{Owner: "rest", Confirm: time.Now().Add(time.Hour)}, put(web()))
	if err != nil {
		t.Fatal(err)
	}
	const commits = 1000
	rewritten, lines := 0, 0
	for i := range commits {
		mustCommit(t, s, "kube", put(numbered(3, i+1)))
		if s.revisions.lines < lines {
			rewritten++
		}
		lines = s.revisions.lines
		if n := len(s.revisions.list); n > maxRevisions+1 {
			t.Fatalf("%d revisions are kept after %d commits", n, i+1)
		}
	}
	if most := commits / (2 * maxRevisions); rewritten > most {
		t.Errorf("the whole file was written %d times by %d commits", rewritten, commits)
	}
	last := s.Snapshot().Revision()
	for range 2 {
		if w, ok := s.Waiting(); !ok || w.Number != number {
			t.Fatalf("got %+v %v, want ok, w.Number == number", w, ok)
		}
		want := fmt.Sprintf("revision %d not found (available: %d-%d)", number, last-maxRevisions+1, last)
		if _, _, _, err := s.Preview(CommitOptions{Owner: "rest"}, rollBackTo(number)); err == nil || err.Error() != want {
			t.Errorf("a preview of revision %d fails with %v, want %s", number, err, want)
		}
		if _, _, _, err := s.Preview(CommitOptions{Owner: "rest"}, rollBackTo(last-maxRevisions)); err != nil {
			t.Error(err)
		}
		closeStore(t, s)
		s = openStore(t, dir)
	}
	if _, changed, err := s.Commit("rest", func(tx *Tx) error { _, err := tx.Undo(number); return err }); err != nil || fmt.Sprint(changed) != "[item web]" {
		t.Errorf(`got %v %v, want no error, changed == "[item web]"`, changed, err)
	}
	if w, ok := s.Waiting(); ok {
		t.Errorf("%+v still waits", w)
	}
}

// TestOlderWhileOneWaits checks that a waiting change can be undone after an older loxilb without
// revisions has run, and that the objects that the older one has changed stay.
func TestOlderWhileOneWaits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	number, _, err := s.CommitBy(CommitOptions{Owner: "rest", Confirm: time.Now().Add(time.Hour)}, put(web(), dns()))
	if err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	older, err := open(osFiles{}, dir, slog.New(slog.DiscardHandler), []AnyTable{NewTable(itemKind())})
	if err != nil {
		t.Fatal(err)
	}
	mustCommit(t, older, "rest", put(web2()))
	mustCommit(t, older, "rest", put(numbered(1, 1)))
	closeStore(t, older)
	for range 2 {
		s = openStore(t, dir)
		if w, ok := s.Waiting(); !ok || w.Number != number {
			t.Fatalf("got %+v %v, want ok, w.Number == number", w, ok)
		}
		mustCommit(t, s, "rest", put(numbered(2, int(s.Snapshot().Revision()))))
		closeStore(t, s)
	}
	s = openStore(t, dir)
	var left []ID
	if _, _, err := s.Commit("rest", func(tx *Tx) (err error) { left, err = tx.Undo(number); return err }); err != nil || fmt.Sprint(left) != "[item web]" {
		t.Errorf("the objects that the undo left are %v (%v)", left, err)
	}
	if got := content(s.Snapshot()); strings.Contains(got, dns().Name) {
		t.Errorf("the change is not undone:\n%s", got)
	}
}

// TestDamagedWhileOneWaits checks that a change no longer waits if a damaged line may have
// confirmed it.
func TestDamagedWhileOneWaits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	if _, _, err := s.CommitBy(CommitOptions{Owner: "rest", Confirm: time.Now().Add(time.Hour)}, put(web())); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Confirm(0); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	path := filepath.Join(dir, revisionsName)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)-3] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if w, ok := openStore(t, dir).Waiting(); ok {
		t.Errorf("%+v waits, and was confirmed", w)
	}
}

// TestRevisionOfFailedCommit checks that a commit that cannot be written to the journal leaves no
// line in the file of revisions, which could be mistaken for the next commit's.
func TestRevisionOfFailedCommit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	mustCommit(t, s, "rest", put(web()))
	read := func() string {
		text, err := os.ReadFile(filepath.Join(dir, revisionsName))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	was := read()
	full, err := osFiles{}.Open("/dev/full")
	if err != nil {
		t.Fatal(err)
	}
	journal := s.disk.journal
	s.disk.journal = full
	if _, _, err := s.Commit("rest", put(dns())); err == nil {
		t.Fatal("a commit on a full disk succeeds")
	}
	if now := read(); now != was {
		t.Errorf("the file of revisions was\n%sand is now\n%s", was, now)
	}
	mustCommit(t, s, "rest", put(dns()))
	if err := journal.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestTimeLeft checks that a deadline years away, because of a clock that is not set yet, is
// limited to the original time.
func TestTimeLeft(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	w := Revision{Time: now, Confirm: now.Add(time.Minute)}
	for now, want := range map[time.Time]time.Duration{
		now.Add(20 * time.Second): 40 * time.Second, now.AddDate(-60, 0, 0): time.Minute, now.Add(2 * time.Minute): -time.Minute,
	} {
		if got := w.TimeLeft(now); got != want {
			t.Errorf("at %v the time left is %v, want %v", now, got, want)
		}
	}
}
