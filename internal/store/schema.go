package store

import (
	"fmt"

	"github.com/hashicorp/go-memdb"
)

// idIndex is the index that memdb wants of each table: here it is by what Kind.Sort makes of the key.
const idIndex = "id"

// schema is what the store asks of a kind before it is open.
type schema struct {
	name    string
	bare    string
	totals  int
	indexes map[string]*memdb.IndexSchema
}

func (t *Table[T]) schema() schema {
	indexes := map[string]*memdb.IndexSchema{idIndex: {Name: idIndex, Unique: true, Indexer: sortIndexer{}}}
	for _, x := range t.kind.Indexes {
		indexes[x.Name] = &memdb.IndexSchema{Name: x.Name, AllowMissing: true, Indexer: valueIndexer[T]{x.Values}}
	}
	return schema{t.kind.Name, t.kind.Bare, len(t.kind.Totals), indexes}
}

// newDB makes the empty tables of the kinds, and one of what is kept without being understood.
func newDB(tables []AnyTable) (*memdb.MemDB, error) {
	all := map[string]*memdb.TableSchema{
		keptTable: {Name: keptTable, Indexes: map[string]*memdb.IndexSchema{
			idIndex: {Name: idIndex, Unique: true, Indexer: sortIndexer{}},
		}},
	}
	for place, t := range tables {
		if err := t.attach(place); err != nil {
			return nil, err
		}
		s := t.schema()
		if all[s.name] != nil {
			return nil, fmt.Errorf("kind %s is given twice", s.name)
		}
		all[s.name] = &memdb.TableSchema{Name: s.name, Indexes: s.indexes}
	}
	return memdb.NewMemDB(&memdb.DBSchema{Tables: all})
}

// sortIndexer is the index of any table by its rows' sort.
type sortIndexer struct{}

func (sortIndexer) FromObject(r any) (bool, []byte, error) {
	return true, []byte(r.(row).header().sort), nil
}
func (sortIndexer) FromArgs(args ...any) ([]byte, error) { return []byte(args[0].(string)), nil }
func (sortIndexer) PrefixFromArgs(args ...any) ([]byte, error) {
	return []byte(args[0].(string)), nil
}

// valueIndexer is an index of a kind. A value in it ends with a zero byte, and memdb appends the row's sort.
type valueIndexer[T any] struct{ values func(T) []string }

func (x valueIndexer[T]) FromObject(r any) (bool, [][]byte, error) {
	values := x.values(r.(*object[T]).value)
	if len(values) == 0 {
		return false, nil, nil
	}
	out := make([][]byte, len(values))
	for i, v := range values {
		b := make([]byte, 0, len(v)+1+len(r.(*object[T]).sort)) // as long as it gets
		out[i] = append(append(b, v...), 0)
	}
	return true, out, nil
}

func (valueIndexer[T]) FromArgs(args ...any) ([]byte, error) { return []byte(args[0].(string)), nil }
func (valueIndexer[T]) PrefixFromArgs(args ...any) ([]byte, error) {
	return []byte(args[0].(string)), nil
}
