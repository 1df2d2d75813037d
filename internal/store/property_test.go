package store

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"loxilb/internal/lb"
)

// Random transactions of three owners on few keys, against a plain map; the store is closed, crashed, compacted
// and reopened in between.
func TestRandomTransactions(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	for round := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, round))
		dir := t.TempDir()
		m := model{services: make(map[lb.Key]modelEntry)}
		s := openStore(t, dir)
		for range 100 {
			m.step(t, s, r)
			if got, want := dump(s.Snapshot()), m.dump(s); got != want {
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
			if got, want := dump(s.Snapshot()), m.dump(s); got != want {
				t.Fatalf("seed %d round %d: reopened\n%swant\n%s", seed, round, got, want)
			}
			m.wantNames(t, s)
		}
	}
}

type modelEntry struct {
	owner   string
	service lb.Service
}

// model is the store as a map that is copied for each transaction.
type model struct {
	revision uint64
	services map[lb.Key]modelEntry
}

func (m *model) step(t *testing.T, s *Store, r *rand.Rand) {
	t.Helper()
	owner := []string{"rest", "kube", "file"}[r.IntN(3)]
	next := make(map[lb.Key]modelEntry, len(m.services))
	for k, e := range m.services {
		next[k] = e
	}
	giveUp := r.IntN(10) == 0
	refused := false
	_, err := s.Commit(owner, func(tx *Tx) error {
		for range 1 + r.IntN(4) {
			one := numbered(r.IntN(6), 1+r.IntN(3))
			one.Name = []string{"", "a", "b", "c"}[r.IntN(4)]
			old, exists := next[one.Key]
			mine := !exists || old.owner == owner
			var err error
			if del := r.IntN(3) == 0; del {
				err = tx.Delete(one.Key)
				mine = mine && exists
				delete(next, one.Key)
			} else {
				err = tx.Put(one)
				next[one.Key] = modelEntry{owner, one}
			}
			if (err == nil) != mine {
				t.Errorf("%s: %v", one, err)
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
	changed := len(next) != len(m.services)
	for k, e := range next {
		old, ok := m.services[k]
		changed = changed || !ok || old.owner != e.owner || !old.service.Equal(e.service)
	}
	m.services = next
	if changed {
		m.revision++
	}
}

// wantNames compares the store's index of names with the model.
func (m *model) wantNames(t *testing.T, s *Store) {
	t.Helper()
	for _, name := range []string{"a", "b", "c"} {
		want := 0
		for _, e := range m.services {
			if e.service.Name == name {
				want++
			}
		}
		got := s.Snapshot().ByName(name)
		for _, one := range got {
			if one.Name != name {
				t.Errorf("%q is found as %q", one.Name, name)
			}
		}
		if len(got) != want {
			t.Errorf("%d services are called %q, want %d", len(got), name, want)
		}
	}
}

// dump writes the model as dump writes a snapshot, in the order of the snapshot.
func (m *model) dump(s *Store) string {
	endpoints := 0
	for _, e := range m.services {
		endpoints += len(e.service.Endpoints)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "revision %d, %d services, %d endpoints\n", m.revision, len(m.services), endpoints)
	for one := range s.Snapshot().All() {
		e := m.services[one.Key]
		fmt.Fprintf(&b, "%s: %s\n", e.owner, e.service)
	}
	return b.String()
}

// A process that is killed while it commits has on disk all that it was told is there.
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

// commitUntilKilled kills a child after some confirmed commits and returns the last one it told.
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

// TestChild is the process of TestKill; by itself it does nothing.
func TestChild(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		return
	}
	s, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Println(err)
		return
	}
	s.disk.limit = 4096
	for i := 0; ; i++ {
		rev, err := s.Commit("rest", put(numbered(i%100, 1+i%7)))
		if err != nil {
			fmt.Println(err)
			return
		}
		if _, err := fmt.Println(rev); err != nil {
			return
		}
	}
}
