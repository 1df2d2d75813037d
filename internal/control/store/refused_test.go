package store

import (
	"errors"
	"log/slog"
	"testing"
)

// TestCommitWithoutRevision checks that a commit whose undo data cannot be encoded fails
// completely: none of its changes are written to the journal, neither alone nor with later commits.
func TestCommitWithoutRevision(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	failsToEncode := false // the existing object, as the undo data requires
	kind := itemKind()
	encode := kind.Encode
	kind.Encode = func(i item) (int, []byte, error) {
		if failsToEncode && i.Label == "old" {
			return 0, nil, errors.New("cannot be encoded")
		}
		return encode(i)
	}
	open := func() (*Store, Table[item]) {
		table := NewTable(kind)
		s, err := Open(dir, slog.New(slog.DiscardHandler), table)
		if err != nil {
			t.Fatal(err)
		}
		return s, table
	}
	s, table := open()
	put := func(one item) error {
		_, _, err := s.Commit("rest", func(tx *Tx) error { return table.Put(tx, one) })
		return err
	}
	if err := put(item{Name: "a", Label: "old"}); err != nil {
		t.Fatal(err)
	}
	failsToEncode = true
	if err := put(item{Name: "a", Label: "new"}); err == nil {
		t.Error("committed without an undo record")
	}
	before := s.Snapshot().Revision()
	if err := put(item{Name: "b", Label: "other"}); err != nil {
		t.Error(err)
	}
	failsToEncode = false
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, table = open()
	defer s.Close() //nolint:errcheck // of a test
	if one, _ := table.Get(s.Snapshot(), "a"); one.Label != "old" {
		t.Errorf("after a start, the refused change exists: %+v", one)
	}
	if _, ok := table.Get(s.Snapshot(), "b"); !ok || s.Snapshot().Revision() != before+1 {
		t.Errorf("after a start, the revision is %d, want %d", s.Snapshot().Revision(), before+1)
	}
}
