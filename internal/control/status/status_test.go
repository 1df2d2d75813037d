package status

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func service(key string) ID { return ID{"service", key} }

var errBroken = errors.New("it is broken")

type temporaryError struct{}

func (temporaryError) Error() string   { return "no row is left" }
func (temporaryError) Temporary() bool { return true }

func TestStates(t *testing.T) {
	t.Parallel()
	table := NewTable()
	clock := time.Unix(100, 0)
	table.now = func() time.Time { return clock }
	a := service("a")
	want := func(state State, since int64) {
		t.Helper()
		s, ok := table.Get(a)
		if !ok || s.State() != state || s.Since.Unix() != since {
			t.Errorf("%+v is %s since %d, want %s since %d", s, s.State(), s.Since.Unix(), state, since)
		}
	}
	table.Want(a, 5)
	want(Pending, 100)
	clock = clock.Add(time.Second)
	if !table.Failed(a, 5, errBroken, clock.Add(time.Second)) || table.Failed(a, 5, errBroken, clock) {
		t.Error("Failed must report a failure as new once")
	}
	want(Failed, 101)
	if s, _ := table.Get(a); s.Attempts != 2 || s.Applied != 0 || s.Desired != 5 {
		t.Errorf("got %+v, want s.Attempts == 2, s.Applied == 0, s.Desired == 5", s)
	}
	clock = clock.Add(time.Second)
	if !table.Succeeded(a, 5) || table.Succeeded(a, 5) {
		t.Error("Succeeded must report a change once")
	}
	want(Applied, 102)
	clock = clock.Add(time.Second)
	table.Want(a, 6)
	want(Pending, 103)
	table.Want(a, 0)
	want(Pending, 103)
	table.Forget(a)
	if s, ok := table.Get(a); ok {
		t.Errorf("removed objects still have the statuses %+v", s)
	}
}

func TestListAndCounts(t *testing.T) {
	t.Parallel()
	table := NewTable()
	table.Want(service("b"), 1)
	table.Want(service("a"), 1)
	table.Failed(ID{"interface", "eth0"}, 1, errBroken, time.Time{})
	table.Succeeded(service("a"), 1)
	var all []string
	for _, s := range table.List("", false) {
		all = append(all, s.String()+" "+string(s.State()))
	}
	if got := strings.Join(all, ", "); got != "interface eth0 failed, service a applied, service b pending" {
		t.Errorf(`got %v, want "interface eth0 failed, service a applied, service b pending"`, got)
	}
	if list := table.List("", true); len(list) != 1 || list[0].Key != "eth0" {
		t.Errorf(`got %+v, want 1 element, list[0].Key == "eth0"`, list)
	}
	if list := table.List("service", true); len(list) != 0 {
		t.Errorf("got %+v, want no list", list)
	}
	if c := table.Counts(); c["service"][Applied] != 1 || c["service"][Pending] != 1 || c["interface"][Failed] != 1 {
		t.Errorf(`got %v, want c["service"][Applied] == 1, c["service"][Pending] == 1, c["interface"][Failed] == 1`,
			c)
	}
}

// TestWait checks that a request waits for its own objects, in its own version.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable()
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		done := make(chan error, 1)
		wait := func(version uint64, keys ...string) {
			var ids []ID
			for _, k := range keys {
				ids = append(ids, service(k))
			}
			go func() { done <- table.Wait(ctx, version, ids) }()
			synctest.Wait()
		}
		waiting := func(step string) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatalf("%s: the wait ended: %v", step, err)
			default:
			}
		}
		ended := func(step, want string) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-done:
				if got := ""; err != nil && err.Error() != want || err == nil && got != want {
					t.Errorf("%s: %v, want %s", step, err, want)
				}
			default:
				t.Fatalf("%s: still waiting", step)
			}
		}
		wait(2, "a")
		waiting("before anything")
		table.Want(service("bad"), 1)
		table.Failed(service("bad"), 1, errBroken, time.Time{})
		waiting("another object failed")
		table.Want(service("a"), 2)
		table.Succeeded(service("a"), 1)
		waiting("an older version")
		table.Succeeded(service("a"), 2)
		ended("applied", "")

		wait(3, "a")
		table.Want(service("a"), 4)
		table.Seen("service", 4)
		table.Succeeded(service("a"), 4)
		ended("a later version", "")

		wait(5, "a", "bad")
		table.Want(service("bad"), 5)
		waiting("an older failure")
		table.Succeeded(service("a"), 5)
		table.Failed(service("bad"), 5, errBroken, time.Time{})
		ended("one failed", "service bad: it is broken")

		wait(6, "a") // deleted
		waiting("not seen")
		table.Want(service("a"), 0)
		table.Seen("service", 6)
		waiting("seen")
		table.Failed(service("a"), 0, temporaryError{}, time.Time{})
		waiting("a temporary error")
		table.Forget(service("a"))
		ended("gone", "")

		table.Want(service("failing"), 6)
		table.Failed(service("failing"), 6, errBroken, time.Time{})
		wait(7, "failing") // deleted
		table.Want(service("failing"), 0)
		table.Seen("service", 7)
		waiting("it failed before it was deleted, and its removal was not tried yet")
		table.Failed(service("failing"), 0, errBroken, time.Time{})
		ended("its removal failed", "service failing: it is broken")
		table.Want(service("failing"), 8)
		wait(9, "failing") // deleted again
		table.Want(service("failing"), 0)
		table.Seen("service", 9)
		waiting("an earlier removal failed")
		table.Forget(service("failing"))
		ended("removed at last", "")

		wait(10, "c")
		table.Want(service("c"), 10)
		table.Failed(service("c"), 10, temporaryError{}, time.Time{})
		time.Sleep(9 * time.Second)
		ended("the temporary error stays", "service c: no row is left")
		wait(11, "d")
		ended("too late", "the data path is still processing it (context deadline exceeded)")
	})
}

// TestUpdate checks that a caller that waits for many objects is notified once per call of Update,
// and checks each object about once.
func TestUpdate(t *testing.T) {
	t.Parallel()
	table := NewTable()
	w := wait{table: table, version: 1, left: []ID{service("a"), service("b"), service("c")}}
	wantUndecided := func(left int) <-chan struct{} {
		t.Helper()
		failures, changed := w.failuresOrWait()
		if failures != nil || changed == nil || len(w.left) != left {
			t.Errorf("failed: %v, left: %v, want %d", failures, w.left, left)
		}
		return changed
	}
	notified := func(changed <-chan struct{}) bool {
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	changed := wantUndecided(3)
	table.Update(func(u *Writer) {
		u.Want(service("a"), 1)
		u.Want(service("b"), 1)
		u.Succeeded(service("a"), 1)
		if notified(changed) {
			t.Error("notified before the end")
		}
	})
	if !notified(changed) {
		t.Error("not notified")
	}
	changed = wantUndecided(2)
	table.Want(service("b"), 2)
	table.Want(service("c"), 1)
	table.Seen("service", 1)
	if notified(changed) {
		t.Error("notified although nothing is decided")
	}
	table.Failed(service("c"), 1, errBroken, time.Time{})
	wantUndecided(2)
	if list := w.failures(); len(list) != 1 || list[0].ID != service("c") {
		t.Errorf("failed so far: %v", list)
	}
	table.Succeeded(service("b"), 1)
	if list, changed := w.failuresOrWait(); len(list) != 1 || list[0].ID != service("c") || changed != nil {
		t.Errorf("failed: %v", list)
	}
	table.Succeeded(service("c"), 1)
	if list, changed := w.failuresOrWait(); list != nil || changed != nil {
		t.Errorf("failed: %v, though it recovered", list)
	}

	// d is created and deleted before the next update.
	w = wait{table: table, version: 5, left: []ID{service("d"), service("e")}}
	table.Want(service("e"), 4)
	changed = wantUndecided(2)
	table.Seen("service", 4)
	if !notified(changed) {
		t.Error("not notified of a revision that may be without the object")
	}
	changed = wantUndecided(2)
	table.Seen("service", 5)
	if !notified(changed) {
		t.Error("not notified that the object is gone")
	}
	changed = wantUndecided(1)
	table.Forget(service("e"))
	if !notified(changed) {
		t.Error("not notified that the other object is gone")
	}
}

func TestErrorIsShort(t *testing.T) {
	t.Parallel()
	table := NewTable()
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		table.Failed(service(key), 1, errBroken, time.Time{})
	}
	err := &Error{table.List("service", true)}
	const want = "service a: it is broken; service b: it is broken; service c: it is broken; and 2 more"
	if err.Error() != want {
		t.Errorf("got %v, want the error %q", err, want)
	}
}

// TestFollow checks that the status of an object that retries by itself is computed at each read.
func TestFollow(t *testing.T) {
	t.Parallel()
	table := NewTable()
	var failure error
	id := ID{"network", "neighbours"}
	table.Follow(id, func() (time.Time, error) { return time.Unix(7, 0), failure })
	if s, ok := table.Get(id); !ok || s.State() != Applied || len(table.List("", true)) != 0 || table.Counts()["network"][Applied] != 1 {
		t.Errorf(`got %+v, want ok, state Applied, no table.List("", true), table.Counts()["network"][Applied] == 1`,
			s)
	}
	failure = errBroken
	if s, _ := table.Get(id); s.State() != Failed || s.Since.Unix() != 7 || len(table.List("network", true)) != 1 || table.Counts()["network"][Failed] != 1 {
		t.Errorf("got %+v, want state Failed since second 7, counted once", s)
	}
}

// TestInclude checks that a status in the table takes precedence over an included one.
func TestInclude(t *testing.T) {
	t.Parallel()
	table := NewTable()
	kept := Status{ID: service("kept"), Desired: 3, Err: errBroken}
	table.Include(func() []Status { return []Status{kept} })
	if s, ok := table.Get(kept.ID); !ok || s != kept {
		t.Errorf("got %+v, want the kept status %+v", s, kept)
	}
	table.Want(kept.ID, 4)
	if s, _ := table.Get(kept.ID); s.State() != Pending || len(table.List("", false)) != 1 {
		t.Errorf("got %+v, want one pending object", s)
	}
}
