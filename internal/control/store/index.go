package store

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"k8s.io/utils/third_party/forked/golang/btree"
)

// sortIndex is the place of the index that each table has: by the result of Kind.Sort.
const sortIndex = 0

// treeDegree makes nodes of up to 63 entries: a commit of one object copies one node per level, of
// which 65,536 objects have three.
const treeDegree = 32

// tree is an index: a B-tree with copy-on-write, so a copy costs nothing. Only the holder of
// Store.writing may copy it; all may read it.
type tree = btree.BTree[entry]

// entry is a row under one of its keys in an index.
type entry struct {
	key string
	row row
}

func newTree() *tree {
	return btree.New(treeDegree, func(a, b entry) bool { return a.key < b.key })
}

// data are the indexes of all tables, and of kept records, which have only one: by place, then by
// index.
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
	for place, indexes := range d {
		out[place] = make([]*tree, len(indexes))
		for i, t := range indexes {
			out[place][i] = t.Clone()
		}
	}
	return out
}

// get finds a row, or returns nil.
func (d data) get(place int, sort string) row {
	e, _ := d[place][sortIndex].Get(entry{key: sort})
	return e.row
}

// set inserts a row, or replaces the row with the same sort key.
func (d data) set(place int, r row, keys func(r row, index int) []string) {
	sort := r.header().sort
	old, had := d[place][sortIndex].ReplaceOrInsert(entry{sort, r})
	for i, t := range d[place][1:] {
		if had {
			drop(t, keys(old.row, i))
		}
		for _, key := range keys(r, i) {
			t.ReplaceOrInsert(entry{key, r})
		}
	}
}

// remove removes the row with a sort.
func (d data) remove(place int, sort string, keys func(r row, index int) []string) {
	old, had := d[place][sortIndex].Delete(entry{key: sort})
	for i, t := range d[place][1:] {
		if had {
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

// keysOf returns the keys of a row in an index of the kind. Each ends with the row's sort, so that
// no other row has it.
func (t *Table[T]) keysOf(r row, index int) []string {
	values := t.kind.Indexes[index].Values(r.(*object[T]).value)
	keys := make([]string, len(values))
	for i, v := range values {
		keys[i] = v + "\x00" + r.header().sort
	}
	return keys
}

// placeOf returns the place of an index of the kind among the table's.
func (t *Table[T]) placeOf(index string) int {
	i := slices.IndexFunc(t.kind.Indexes, func(x Index[T]) bool { return x.Name == index })
	if i < 0 {
		panic(fmt.Sprintf("%s has no index %s", t.kind.Name, index)) // a fault of the caller's code
	}
	return 1 + i
}
