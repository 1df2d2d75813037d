package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// item is an object of the kind that files of version 2 can have, like services.
type item struct {
	Name  string   `json:"item"`
	Owner string   `json:"owner,omitempty"` // set by the store, in files of version 2
	Label string   `json:"label,omitempty"`
	Parts []string `json:"parts,omitempty"`
}

func (i item) id() ID { return ID{"item", i.Name} }

func itemKind() Kind[item] {
	return Kind[item]{
		Name:  "item",
		Key:   func(i item) string { return i.Name },
		Equal: func(a, b item) bool { return a.Name == b.Name && a.Label == b.Label && slices.Equal(a.Parts, b.Parts) },
		Validate: func(i item) error {
			if i.Name == "" {
				return errors.New("the item has no name")
			}
			return nil
		},
		Clone:  func(i item) item { i.Parts = slices.Clone(i.Parts); return i },
		Format: 2,
		Encode: func(i item) (int, []byte, error) {
			b, err := json.Marshal(i)
			return 2, b, err
		},
		Decode: func(_ int, object []byte) (i item, err error) {
			err = decodeStrict(object, &i)
			i.Owner = ""
			return i, err
		},
		Bare: "item",
		Indexes: []Index[item]{{Name: "label", Values: func(i item) []string {
			if i.Label == "" {
				return nil
			}
			return []string{i.Label}
		}}},
		Totals: []func(item) int{func(i item) int { return len(i.Parts) }},
	}
}

func openTables(t testing.TB, dir string, tables ...AnyTable) *Store {
	t.Helper()
	s, err := Open(dir, slog.New(slog.NewTextHandler(t.Output(), nil)), tables...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// openStore opens a store of items.
func openStore(t testing.TB, dir string) *Store {
	t.Helper()
	return openTables(t, dir, NewTable(itemKind()))
}

func closeStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// items returns the table of a view of a store of items.
func items(s *Snapshot) Table[item] { return s.tables[0].(Table[item]) }

// numbered returns item number i, with n parts.
func numbered(i, n int) item {
	one := item{Name: fmt.Sprintf("item-%05d", i), Label: fmt.Sprint("label ", i)}
	for j := range n {
		one.Parts = append(one.Parts, fmt.Sprint("part-", j))
	}
	return one
}

func web() item  { return item{Name: "web", Label: "w", Parts: []string{"one", "two"}} }
func web2() item { return item{Name: "web", Label: "w", Parts: []string{"<&>"}} }
func dns() item  { return item{Name: "dns", Label: "d n s"} }

func put(list ...item) func(*Tx) error {
	return func(tx *Tx) error {
		for _, one := range list {
			if err := items(tx.base).Put(tx, one); err != nil {
				return err
			}
		}
		return nil
	}
}

func mustCommit(t testing.TB, s *Store, owner string, edit func(*Tx) error) uint64 {
	t.Helper()
	revision, _, err := s.Commit(owner, edit)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// dump returns a state as text, for comparison.
func dump(s *Snapshot) string {
	var b strings.Builder
	fmt.Fprintf(&b, "revision %d, %d items, %d parts\n", s.Revision(), items(s).Len(s), items(s).Total(s, 0))
	for one := range items(s).All(s) {
		meta, _ := s.Meta(one.id())
		fmt.Fprintf(&b, "%s %d: %s %q %q\n", meta.Owner, meta.Version, one.Name, one.Label, one.Parts)
	}
	for u := range s.Unknown() {
		fmt.Fprintf(&b, "%s %d: %s format %d %s: %s\n", u.Owner, u.Version, u.ID, u.Format, u.Object, u.Reason)
	}
	return b.String()
}

func wantDump(t *testing.T, s *Snapshot, want string) {
	t.Helper()
	if diff := cmp.Diff(want, dump(s)); diff != "" {
		t.Fatalf("-want +got\n%s", diff)
	}
}
