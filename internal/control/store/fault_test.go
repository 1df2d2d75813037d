package store

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"loxilb/test/race"
)

// recordsOf returns a state as its records, as in a file.
func recordsOf(t testing.TB, s *Snapshot) string {
	t.Helper()
	b := fmt.Appendf(nil, "revision %d\n", s.revision)
	for p := range s.all() {
		r, err := s.recordOf(p)
		if err != nil {
			t.Fatal(err)
		}
		b = append(r.appendTo(b), '\n')
	}
	return string(b)
}

// trial is a store on files that fail, and the state that it has confirmed.
type trial struct {
	t     *testing.T
	files *memFiles
	store *Store
	// confirmed is the state that is certainly on disk. After failed commits, and until the
	// next confirmed one, the state on disk may also be one of attempts.
	confirmed string
	attempts  []string
	losses    int // number of power losses after a failure
}

const memDir = "/var/lib/state"

func openMem(m *memFiles) (*Store, error) {
	return open(m, memDir, slog.New(slog.DiscardHandler), []AnyTable{NewTable(itemKind()), NewTable(ruleKind(2))})
}

// script returns the steps of a test, which include all disk operations of a store: commits,
// records that need files of a higher version, compactions and restarts.
func script() []func(*trial) {
	edit := func(f func(*Tx) error) func(*trial) { return func(x *trial) { x.commit(f) } }
	compact := func(x *trial) {
		if x.store != nil {
			x.store.disk.limit = 1
		}
	}
	return []func(*trial){
		(*trial).open,
		edit(put(web(), dns())),
		edit(put(numbered(1, 3))),
		compact,
		edit(put(numbered(2, 3))),
		edit(deletesOf(dns().id())),
		(*trial).restart,
		edit(put(web2())),
		edit(putRules(rule{Number: 1, Item: "web"})),
		edit(put(dns())),
		compact,
		edit(put(numbered(3, 3))),
		edit(putRules(rule{Number: 2, Item: "web", Note: "new"})),
		(*trial).restart,
		edit(deletesOf(ID{"rule", "1"}, ID{"rule", "2"})),
		compact,
		edit(put(numbered(4, 3))),
		edit(put(numbered(5, 3))),
	}
}

// deletesOf deletes objects if they exist: creating one may have failed.
func deletesOf(ids ...ID) func(*Tx) error {
	return func(tx *Tx) error {
		for _, id := range ids {
			if find(tx.base, tx, id) == nil {
				continue
			}
			if err := tx.Delete(id); err != nil {
				return err
			}
		}
		return nil
	}
}

func (x *trial) open() {
	s, err := openMem(x.files)
	if err != nil {
		if x.files.failedCall == "" {
			x.t.Fatalf("open: %v", err)
		}
		return
	}
	x.store = s
	x.expect(recordsOf(x.t, s.Snapshot()))
	x.confirmed, x.attempts = recordsOf(x.t, s.Snapshot()), nil
}

func (x *trial) restart() {
	if x.store != nil {
		_ = x.store.Close() // ignores the error
		x.store = nil
	}
	x.open()
}

// expect checks that a state may be on disk.
func (x *trial) expect(state string) {
	x.t.Helper()
	if state != x.confirmed && !slices.Contains(x.attempts, state) {
		x.t.Fatalf("%s at call %d, %d of %d bytes: the state is\n%sconfirmed was\n%sfiles:\n%s", x.files.failedCall, x.files.failAt, x.files.tornSize, x.files.failedSize,
			state, x.confirmed, x.files.listing())
	}
}

func (x *trial) commit(edit func(*Tx) error) {
	x.t.Helper()
	if x.store == nil { // a failed start; the disk works again
		if x.open(); x.store == nil {
			x.t.Fatalf("%s at call %d: the store does not open on a healthy disk", x.files.failedCall, x.files.failAt)
		}
	}
	had, before, attempts := x.files.failedCall, x.store.Snapshot(), x.attempts
	x.attempts = append(x.attempts, x.attempt(edit))
	release := func() {}
	if x.store.disk.pendingTidy == nil { // otherwise the commit itself writes a snapshot
		x.files.snapshotLock.Lock() // until the commit returns
		release = x.files.snapshotLock.Unlock
	}
	_, _, err := x.store.Commit("rest", edit)
	switch {
	case err == nil:
		x.confirmed, x.attempts = recordsOf(x.t, x.store.Snapshot()), nil
	case had != "":
		x.t.Fatalf("%s at call %d: a later commit fails, although the disk works: %v", had, x.files.failAt, err)
	case x.store.Snapshot() != before:
		x.t.Fatalf("%s at call %d: the changes of a failed commit are visible", x.files.failedCall, x.files.failAt)
	case x.files.failedCall == "":
		x.attempts = attempts
		x.t.Fatalf("got %v, want x.files.hit not empty", err)
	}
	release()
	x.store.disk.background.Wait()
	if x.files.failedCall != "" && x.losses < 2 { // two commits later the failure has no more effect
		x.losses++
		x.powerLoss()
	}
}

// attempt returns the state after an edit, without a commit.
func (x *trial) attempt(edit func(*Tx) error) string {
	x.t.Helper()
	tx := newTx(x.store.Snapshot(), "rest")
	if err := edit(tx); err != nil {
		x.t.Fatal(err)
	}
	next, _ := tx.finish()
	return recordsOf(x.t, next)
}

// powerLoss starts stores on all states of the disk that a power loss now could leave.
func (x *trial) powerLoss() {
	x.t.Helper()
	for entries := range len(x.files.pending) + 1 {
		for _, data := range []bool{false, true} {
			x.startOn(x.files.after(entries, data))
		}
	}
}

func (x *trial) startOn(left *memFiles) {
	x.t.Helper()
	s, err := openMem(left)
	if err != nil {
		x.t.Fatalf("%s at call %d of %d, then a power loss: %v", x.files.failedCall, x.files.failAt, x.files.calls, err)
	}
	x.expect(recordsOf(x.t, s.Snapshot()))
	if list := left.listing(); strings.Contains(list, ".damaged-") {
		x.t.Fatalf("%s at call %d of %d, %d of %d bytes, then a power loss: %s", x.files.failedCall, x.files.failAt, x.files.calls, x.files.tornSize, x.files.failedSize, list)
	}
	if err := s.Close(); err != nil {
		x.t.Fatal(err)
	}
}

const noState = "revision 0\n"

func (x *trial) run() {
	x.t.Helper()
	x.confirmed = noState
	for _, step := range script() {
		step(x)
	}
	x.powerLoss()
	x.restart()
	if x.store == nil {
		x.restart()
	}
	if x.store == nil {
		x.t.Fatalf("%s at call %d: the store does not open again", x.files.failedCall, x.files.failAt)
	}
	_ = x.store.Close()
}

// TestEveryCallFails makes each disk operation fail once, in each way. It checks that no confirmed
// change is lost, and that the next commit succeeds.
//
// P5
func TestEveryCallFails(t *testing.T) {
	t.Parallel()
	race.Skip(t)
	clean := &trial{t: t, files: newMemFiles()}
	clean.run()
	if clean.files.calls < 150 {
		t.Fatalf("the script makes %d calls only", clean.files.calls)
	}
	seen := map[string]bool{}
	for at := range clean.files.calls {
		for _, how := range []fault{failBefore, failAfter, tear} {
			for part := range 3 {
				x := &trial{t: t, files: newMemFiles()}
				x.files.failAt, x.files.fault = at, how
				x.files.tearPart = part
				x.run()
				seen[x.files.failedCall] = true
				if how != tear || x.files.failedSize == 0 {
					break
				}
			}
		}
	}
	for _, op := range []string{"create", "write", "sync", "rename", "sync directory", "open", "remove", "read", "close", "mkdir", "stat"} {
		if !seen[op] {
			t.Errorf("%s never failed: %v", op, seen)
		}
	}
}

// TestPowerLossAtEveryCall simulates a power loss before each disk operation, and within each
// write. It checks that the next start has all confirmed changes.
//
// P5 Confirmed changes survive a crash, a loss of power, a failing disk and a full disk, at any
// moment
func TestPowerLossAtEveryCall(t *testing.T) {
	t.Parallel()
	race.Skip(t)
	x := &trial{t: t, files: newMemFiles()}
	starts := 0
	x.files.beforeCall = func(_ string, size int, do func(int) error) {
		x.powerLoss()
		for cut := 1; cut < size; cut++ { // the whole write then overwrites this part
			starts++
			if err := do(cut); err != nil {
				t.Fatal(err)
			}
			x.startOn(x.files.after(len(x.files.pending), true))
		}
	}
	x.run()
	if starts < 1000 {
		t.Errorf("%d starts only", starts)
	}
}
