package store

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"k8s.io/utils/third_party/forked/golang/btree"
)

// primaryIndex is the number of the index by sort key, which each table has.
const primaryIndex = 0

// treeDegree makes nodes of up to 63 entries. A commit of one object copies one node per level; a
// tree of 65,536 objects has three levels.
const treeDegree = 32

// tree is an index: a B-tree with copy-on-write, so a copy costs nothing. Only the holder of
// Store.writing may copy it; it may be read by any goroutine.
type tree = btree.BTree[entry]

// entry is a row under one of its keys in an index.
type entry struct {
	key string
	row row
}

func newTree() *tree {
	return btree.New(treeDegree, func(a, b entry) bool { return a.key < b.key })
}

// data are the indexes of each table, and of the unknown records, which have only the primary
// index: by table, then by number of the index.
type data [][]*tree

func newData(tables []AnyTable) data {
	d := make(data, 0, len(tables)+1)
	for _, t := range tables {
		indexes := make([]*tree, 1+t.indexes())
		for i := range indexes {
			indexes[i] = newTree()
		}
		d = append(d, indexes)
	}
	return append(d, []*tree{newTree()})
}

func (d data) clone() data {
	out := make(data, len(d))
	for table, indexes := range d {
		out[table] = make([]*tree, len(indexes))
		for i, t := range indexes {
			out[table][i] = t.Clone()
		}
	}
	return out
}

// get returns the row with a sort key, or nil.
func (d data) get(table int, sortKey string) row {
	e, _ := d[table][primaryIndex].Get(entry{key: sortKey})
	return e.row
}

// set inserts a row, or replaces the row with the same sort key.
func (d data) set(table int, r row, keys func(r row, index int) []string) {
	sortKey := r.header().sortKey
	old, existed := d[table][primaryIndex].ReplaceOrInsert(entry{sortKey, r})
	for i, t := range d[table][1:] {
		if existed {
			drop(t, keys(old.row, i))
		}
		for _, key := range keys(r, i) {
			t.ReplaceOrInsert(entry{key, r})
		}
	}
}

// remove removes the row with a sort key.
func (d data) remove(table int, sortKey string, keys func(r row, index int) []string) {
	old, existed := d[table][primaryIndex].Delete(entry{key: sortKey})
	for i, t := range d[table][1:] {
		if existed {
			drop(t, keys(old.row, i))
		}
	}
}

func drop(t *tree, keys []string) {
	for _, key := range keys {
		t.Delete(entry{key: key})
	}
}

// rowsOf yields the rows whose key begins with prefix, in order.
func rowsOf(t *tree, prefix string) iter.Seq[row] {
	return func(yield func(row) bool) {
		t.AscendGreaterOrEqual(entry{key: prefix}, func(e entry) bool {
			return strings.HasPrefix(e.key, prefix) && yield(e.row)
		})
	}
}

// firstRow returns the first row of rowsOf, or nil.
func firstRow(t *tree, prefix string) row {
	for r := range rowsOf(t, prefix) {
		return r
	}
	return nil
}

// keysOf returns the keys of a row in one of Kind.Indexes. Each ends with the row's sort key, so no
// other row has it.
func (t *kindTable[T]) keysOf(r row, index int) []string {
	values := t.kind.Indexes[index].Values(r.(*object[T]).value)
	keys := make([]string, len(values))
	for i, v := range values {
		keys[i] = v + "\x00" + r.header().sortKey
	}
	return keys
}

// indexNumber returns the number of the index with a name.
func (t *kindTable[T]) indexNumber(index string) int {
	i := slices.IndexFunc(t.kind.Indexes, func(x Index[T]) bool { return x.Name == index })
	if i < 0 {
		panic(fmt.Sprintf("%s has no index %s", t.kind.Name, index)) // a fault of the caller's code
	}
	return 1 + i
}
