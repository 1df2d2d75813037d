package store

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"loxilb/test/race"
)

// TestRandomTransactions compares a store with a map, after random transactions of three owners on
// few keys. In between, it closes, crashes, compacts and reopens the store.
func TestRandomTransactions(t *testing.T) {
	t.Parallel()
	race.Skip(t)
	seed := uint64(time.Now().UnixNano())
	rounds := uint64(20)
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		r := rand.New(rand.NewPCG(seed, round))
		dir := t.TempDir()
		m := model{items: make(map[string]modelEntry)}
		s := openStore(t, dir)
		for range 100 {
			m.step(t, s, r)
			if got, want := dump(s.Snapshot()), m.dump(); got != want {
				t.Fatalf("seed %d round %d: got\n%swant\n%s", seed, round, got, want)
			}
			switch r.IntN(12) {
			case 0:
				closeStore(t, s)
				s = openStore(t, dir)
			case 1:
				s.disk.background.Wait()
				dir = copyDir(t, dir)
				s = openStore(t, dir)
			case 2:
				s.disk.limit = 1
			}
			if got, want := dump(s.Snapshot()), m.dump(); got != want {
				t.Fatalf("seed %d round %d: reopened\n%swant\n%s", seed, round, got, want)
			}
			m.wantLabels(t, s.Snapshot())
		}
	}
}

type modelEntry struct {
	owner   string
	version uint64
	item    item
}

// model is the store as a map that is copied for each transaction.
type model struct {
	revision uint64
	items    map[string]modelEntry
}

func (m *model) step(t *testing.T, s *Store, r *rand.Rand) {
	t.Helper()
	owner := []string{"rest", "kube", "file"}[r.IntN(3)]
	next := maps.Clone(m.items)
	giveUp := r.IntN(10) == 0
	refused := false
	_, changed, err := s.Commit(owner, func(tx *Tx) error {
		for range 1 + r.IntN(4) {
			one := numbered(r.IntN(6), 1+r.IntN(3))
			one.Label = []string{"", "a", "b", "c"}[r.IntN(4)]
			old, exists := next[one.Name]
			mine := !exists || old.owner == owner
			var err error
			if del := r.IntN(3) == 0; del {
				err = tx.Delete(one.id())
				mine = mine && exists
				delete(next, one.Name)
			} else {
				err = put(one)(tx)
				next[one.Name] = modelEntry{owner, m.revision + 1, one}
			}
			if (err == nil) != mine {
				t.Errorf("%v: got %v, want an error only if another owner has the object", one, err)
			}
			if err != nil {
				refused = true
				return err
			}
		}
		if giveUp {
			return errors.New("given up")
		}
		return nil
	})
	if (err != nil) != (refused || giveUp) {
		t.Fatalf("refused: %v, error: %v", refused, err)
	}
	if err != nil {
		return
	}
	var want []ID
	for i := range 6 {
		id := numbered(i, 0).id()
		old, had := m.items[id.Key]
		now, has := next[id.Key]
		if had == has && old.owner == now.owner && reflect.DeepEqual(old.item, now.item) {
			if had {
				next[id.Key] = old // with its version
			}
			continue
		}
		want = append(want, id)
	}
	if !slices.Equal(changed, want) {
		t.Errorf("changed %v, want %v", changed, want)
	}
	m.items = next
	if len(want) > 0 {
		m.revision++
	}
}

// wantLabels compares the store's index of labels with the model.
func (m *model) wantLabels(t *testing.T, s *Snapshot) {
	t.Helper()
	for _, label := range []string{"a", "b", "c"} {
		var want, got []string
		for _, name := range slices.Sorted(maps.Keys(m.items)) {
			if m.items[name].item.Label == label {
				want = append(want, name)
			}
		}
		for one := range items(s).Find(s, "label", label) {
			got = append(got, one.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("label %s: %v, want %v", label, got, want)
		}
	}
}

// dump returns the model in the form of the function dump.
func (m *model) dump() string {
	parts := 0
	for _, e := range m.items {
		parts += len(e.item.Parts)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "revision %d, %d items, %d parts\n", m.revision, len(m.items), parts)
	for _, name := range slices.Sorted(maps.Keys(m.items)) {
		e := m.items[name]
		fmt.Fprintf(&b, "%s %d: %s %q %q\n", e.owner, e.version, name, e.item.Label, e.item.Parts)
	}
	return b.String()
}

// TestKill checks that all confirmed commits of a process are on disk after it is killed.
//
// P5
func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 3 {
		confirmed := commitUntilKilled(t, dir)
		s := openStore(t, dir)
		if rev := s.Snapshot().Revision(); rev < confirmed || rev > confirmed+1 {
			t.Errorf("revision %d on disk, %d was confirmed", rev, confirmed)
		}
		closeStore(t, s)
	}
	if aside := asideFiles(t, dir); len(aside) > 0 {
		t.Errorf("%v set aside", aside)
	}
}

const childDir = "LOXILB_STORE_TEST_DIR"

// commitUntilKilled kills a child process after some commits, and returns the last revision that it
// has confirmed.
func commitUntilKilled(t *testing.T, dir string) (confirmed uint64) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^TestChild$")
	child.Env = append(os.Environ(), childDir+"="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		if confirmed, err = strconv.ParseUint(lines.Text(), 10, 64); err != nil {
			t.Fatalf("the child says %q", lines.Text())
		}
		if n == 50 {
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = child.Wait() // it was killed
	return confirmed
}

// TestChild is not a test, but the child process of TestKill.
func TestChild(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		return
	}
	s, err := Open(dir, slog.New(slog.DiscardHandler), NewTable(itemKind()))
	if err != nil {
		fmt.Println(err)
		return
	}
	s.disk.limit = 4096
	for i := 0; ; i++ {
		rev, _, err := s.Commit("rest", put(numbered(i%100, 1+i%7)))
		if err != nil {
			fmt.Println(err)
			return
		}
		if _, err := fmt.Println(rev); err != nil {
			return
		}
	}
}
