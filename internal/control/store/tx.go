package store

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
)

// Tx is a transaction in progress: only it sees its own changes. It is valid only during the call
// of edit.
type Tx struct {
	owner   string
	base    *Snapshot
	data    data             // the current state
	touched map[position]row // current rows; nil: deleted
	keeps   int              // upper bound of the number of kept records that are not understood

	revisions *revisionLog // nil: no revisions are remembered
	resolves  uint64       // the revision that no longer waits for confirmation when this is committed
}

// position is the position of a row: the index of its table, and its sort key.
type position struct {
	place int
	sort  string
}

func comparePositions(a, b position) int {
	return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.sort, b.sort))
}

func begin(base *Snapshot, owner string) *Tx {
	return &Tx{
		owner: owner, base: base, data: base.data.clone(), touched: map[position]row{},
		keeps: base.UnknownLen(),
	}
}

// Expect returns ErrVersion unless the object has this version; 0: unless it is missing.
func (tx *Tx) Expect(id ID, version uint64) error {
	meta, ok := metaOf(find(tx.base, tx, id))
	switch {
	case meta.Version == version:
		return nil
	case !ok:
		return fmt.Errorf("%s %w: it does not exist, and version %d was expected", id, ErrVersion, version)
	case version == 0:
		return fmt.Errorf("%s %w: it exists in version %d, and was expected to be missing", id, ErrVersion, meta.Version)
	}
	return fmt.Errorf("%s %w: it has version %d, and version %d was expected", id, ErrVersion, meta.Version, version)
}

// ExpectTag is Expect by the tag of a version.
func (tx *Tx) ExpectTag(id ID, tag string) error {
	switch meta, ok := metaOf(find(tx.base, tx, id)); {
	case ok && meta.Tag() == tag:
		return nil
	case !ok:
		return fmt.Errorf("%s %w: it does not exist, and version %s was expected", id, ErrVersion, tag)
	default:
		return fmt.Errorf("%s %w: it has version %s, and version %s was expected", id, ErrVersion, meta.Tag(), tag)
	}
}

// Delete removes an object of any kind, including one that is not understood. It returns
// ErrNotFound if the object is missing, and ErrOwner if it has another owner.
func (tx *Tx) Delete(id ID) error {
	r := find(tx.base, tx, id)
	if r == nil {
		return fmt.Errorf("%s %w", id, ErrNotFound)
	}
	if err := tx.mayChange(id, r); err != nil {
		return err
	}
	tx.remove(tx.placeOf(r, id), r)
	return nil
}

// Changed reports whether a commit would change anything so far. The cost grows with the
// transaction.
func (tx *Tx) Changed() bool {
	for at, after := range tx.touched {
		if !tx.same(at, tx.base.row(at.place, at.sort), after) {
			return true
		}
	}
	return false
}

// Before is the state that the transaction changes: with the commits that are made together with
// it, and before it.
func (tx *Tx) Before() *Snapshot { return tx.base }

func (tx *Tx) mayChange(id ID, rows ...row) error {
	for _, r := range rows {
		if r != nil && r.header().Owner != tx.owner {
			return fmt.Errorf("%s %w, %q", id, ErrOwner, r.header().Owner)
		}
	}
	return nil
}

// revision returns the commit's revision, if it changes anything.
func (tx *Tx) revision() uint64 { return tx.base.revision + 1 }

// unknownRecord returns the kept record of an object that is not understood, usually nil.
func (tx *Tx) unknownRecord(id ID) row {
	if tx.keeps == 0 {
		return nil
	}
	return tx.row(len(tx.base.tables), keptSort(id))
}

func (tx *Tx) placeOf(r row, id ID) int {
	if _, ok := r.(*keptRow); ok {
		return len(tx.base.tables)
	}
	return slices.Index(tx.base.names, id.Kind)
}

// row returns the current row, or nil.
func (tx *Tx) row(place int, sort string) row {
	if r, touched := tx.touched[position{place, sort}]; touched {
		return r
	}
	return tx.base.row(place, sort)
}

// rows yields the rows that exist when the loop begins: they are a copy-on-write snapshot.
func (tx *Tx) rows(place, index int, prefix string) iter.Seq[row] {
	return func(yield func(row) bool) { rowsOf(tx.data[place][index].Clone(), prefix)(yield) }
}

func (tx *Tx) first(place int, prefix string) row {
	return firstRow(tx.data[place][sortIndex], prefix)
}

func (tx *Tx) set(place int, r row) {
	tx.data.set(place, r, tx.keysOf(place))
	if place == len(tx.base.tables) {
		tx.keeps++
	}
	tx.touched[position{place, r.header().sort}] = r
}

func (tx *Tx) remove(place int, r row) {
	tx.data.remove(place, r.header().sort, tx.keysOf(place))
	tx.touched[position{place, r.header().sort}] = nil
}

// keysOf returns AnyTable.keysOf of a table. It is not called for kept records, which have only the
// first index.
func (tx *Tx) keysOf(place int) func(r row, index int) []string {
	if place == len(tx.base.tables) {
		return nil
	}
	return tx.base.tables[place].keysOf
}

func (tx *Tx) same(at position, before, after row) bool {
	if before == nil || after == nil || at.place == len(tx.base.tables) {
		return before == after
	}
	return tx.base.tables[at.place].same(before, after)
}

// change is the result of a transaction.
type change struct {
	revision uint64
	owner    string
	put      []placed // ordered by table and sort, as deleted is
	deleted  []ID
	ids      []ID // of both, each once, ordered by kind and key
	before   []former
	resolves uint64

	remembered *Revision // nil: none is
}

// former is an object as a transaction found it.
type former struct {
	id      ID
	place   int
	row     row  // nil: there was none
	deleted bool // the transaction deleted it
}

type placed struct {
	place int
	row   row
}

// finish makes the next snapshot. The change is nil, and the snapshot the old one, if nothing has
// changed.
func (tx *Tx) finish() (*Snapshot, *change) {
	c := &change{revision: tx.revision(), owner: tx.owner, resolves: tx.resolves}
	counts := tx.base.cloneCounts()
	positions := make([]position, 0, len(tx.touched))
	for at := range tx.touched {
		positions = append(positions, at)
	}
	slices.SortFunc(positions, comparePositions)
	for _, at := range positions {
		before, after := tx.base.row(at.place, at.sort), tx.touched[at]
		if tx.same(at, before, after) {
			if before != after {
				tx.set(at.place, before) // there and back: it keeps its version
			}
			continue
		}
		tx.count(counts, at.place, before, -1)
		tx.count(counts, at.place, after, 1)
		id := tx.idOf(at.place, cmp.Or(after, before))
		c.ids = append(c.ids, id)
		c.before = append(c.before, former{id, at.place, before, after == nil})
		if after == nil {
			c.deleted = append(c.deleted, id)
		} else {
			c.put = append(c.put, placed{at.place, after})
		}
	}
	if len(c.ids) == 0 {
		return tx.base, nil
	}
	slices.SortFunc(c.ids, compareIDs)
	c.ids = slices.Compact(c.ids)
	return tx.seal(c.revision, counts), c
}

// seal makes the snapshot of the transaction's result.
func (tx *Tx) seal(revision uint64, counts []count) *Snapshot {
	next := *tx.base
	next.revision, next.data, next.counts = revision, tx.data, counts
	return &next
}

func (tx *Tx) count(counts []count, place int, r row, sign int) {
	if r == nil {
		return
	}
	c := &counts[place]
	c.rows += sign
	if place == len(tx.base.tables) {
		return
	}
	tx.base.tables[place].totals(r, c.totals, sign)
}

func (tx *Tx) idOf(place int, r row) ID {
	if k, ok := r.(*keptRow); ok {
		return k.ID
	}
	return ID{tx.base.names[place], tx.base.tables[place].keyOf(r)}
}
