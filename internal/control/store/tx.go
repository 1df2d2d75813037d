package store

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
)

// Tx is a transaction in progress. Its changes are visible only in it. It is valid only during the
// call of edit.
type Tx struct {
	owner      string
	base       *Snapshot
	data       data           // the state with the transaction's changes
	touched    map[rowKey]row // rows that the transaction has set; nil: deleted
	maxUnknown int            // upper bound of the number of unknown records

	revisions *revisionLog // nil: no revisions are remembered
	resolves  uint64       // the waiting revision that this transaction confirms or rolls back; 0: none
}

// rowKey identifies a row.
type rowKey struct {
	table   int // index in Snapshot.tables
	sortKey string
}

func compareRowKeys(a, b rowKey) int {
	return cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.sortKey, b.sortKey))
}

func newTx(base *Snapshot, owner string) *Tx {
	return &Tx{
		owner: owner, base: base, data: base.data.clone(), touched: map[rowKey]row{},
		maxUnknown: base.UnknownLen(),
	}
}

// Expect returns ErrVersion unless the object has this version. Version 0 stands for a missing
// object.
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

// ExpectTag returns ErrVersion unless the object has the version with this tag.
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

// Delete removes an object of any kind, including an unknown record. It returns ErrNotFound if the
// object is missing, and ErrOwner if it has another owner.
func (tx *Tx) Delete(id ID) error {
	r := find(tx.base, tx, id)
	if r == nil {
		return fmt.Errorf("%s %w", id, ErrNotFound)
	}
	if err := tx.checkOwner(id, r); err != nil {
		return err
	}
	tx.remove(tx.tableOf(r, id), r)
	return nil
}

// Changed reports whether the transaction has changed anything so far. The cost is proportional to
// the size of the transaction.
func (tx *Tx) Changed() bool {
	for at, after := range tx.touched {
		if !tx.same(at, tx.base.row(at.table, at.sortKey), after) {
			return true
		}
	}
	return false
}

// Before returns the state before the transaction. It includes earlier transactions of the same
// batch.
func (tx *Tx) Before() *Snapshot { return tx.base }

// checkOwner returns ErrOwner if one of the rows of an object has another owner.
func (tx *Tx) checkOwner(id ID, rows ...row) error {
	for _, r := range rows {
		if r != nil && r.header().Owner != tx.owner {
			return fmt.Errorf("%s %w, %q", id, ErrOwner, r.header().Owner)
		}
	}
	return nil
}

// revision returns the revision that the transaction creates if it changes anything.
func (tx *Tx) revision() uint64 { return tx.base.revision + 1 }

// unknownRecord returns the unknown record of an object, or nil.
func (tx *Tx) unknownRecord(id ID) row {
	if tx.maxUnknown == 0 {
		return nil
	}
	return tx.row(tx.base.unknownTable(), unknownSortKey(id))
}

// tableOf returns the table of a row of an object.
func (tx *Tx) tableOf(r row, id ID) int {
	if _, ok := r.(*unknownRow); ok {
		return tx.base.unknownTable()
	}
	return slices.Index(tx.base.names, id.Kind)
}

// row returns the current row, or nil.
func (tx *Tx) row(table int, sortKey string) row {
	if r, touched := tx.touched[rowKey{table, sortKey}]; touched {
		return r
	}
	return tx.base.row(table, sortKey)
}

// rows yields the rows that exist when the loop begins: they are a copy-on-write snapshot.
func (tx *Tx) rows(table, index int, prefix string) iter.Seq[row] {
	return func(yield func(row) bool) { rowsOf(tx.data[table][index].Clone(), prefix)(yield) }
}

func (tx *Tx) first(table int, prefix string) row {
	return firstRow(tx.data[table][primaryIndex], prefix)
}

func (tx *Tx) set(table int, r row) {
	tx.data.set(table, r, tx.keysOf(table))
	if table == tx.base.unknownTable() {
		tx.maxUnknown++
	}
	tx.touched[rowKey{table, r.header().sortKey}] = r
}

func (tx *Tx) remove(table int, r row) {
	tx.data.remove(table, r.header().sortKey, tx.keysOf(table))
	tx.touched[rowKey{table, r.header().sortKey}] = nil
}

// keysOf returns the method keysOf of a table. It is nil for unknown records, which have only the
// primary index.
func (tx *Tx) keysOf(table int) func(r row, index int) []string {
	if table == tx.base.unknownTable() {
		return nil
	}
	return tx.base.tables[table].keysOf
}

func (tx *Tx) same(at rowKey, before, after row) bool {
	if before == nil || after == nil || at.table == tx.base.unknownTable() {
		return before == after
	}
	return tx.base.tables[at.table].same(before, after)
}

// change is the result of a transaction.
type change struct {
	revision uint64
	owner    string
	rows     []rowChange // ordered by table and sort key
	ids      []ID        // of rows, each once, ordered by kind and key
	resolves uint64      // see Tx.resolves

	remembered *Revision // the revision to remember; nil: none
}

// rowChange is a row that a transaction has created, replaced or deleted.
type rowChange struct {
	id     ID
	table  int
	before row // nil: the transaction has created the row
	after  row // nil: the transaction has deleted the row
}

// sortKey returns the sort key of the row.
func (r *rowChange) sortKey() string { return cmp.Or(r.after, r.before).header().sortKey }

// tableRow is a row with its table.
type tableRow struct {
	table int
	row   row
}

// finish returns the next snapshot, and the change that leads to it. If nothing has changed, it
// returns the base and nil.
func (tx *Tx) finish() (*Snapshot, *change) {
	c := &change{revision: tx.revision(), owner: tx.owner, resolves: tx.resolves}
	counts := tx.base.cloneCounts()
	positions := make([]rowKey, 0, len(tx.touched))
	for at := range tx.touched {
		positions = append(positions, at)
	}
	slices.SortFunc(positions, compareRowKeys)
	for _, at := range positions {
		before, after := tx.base.row(at.table, at.sortKey), tx.touched[at]
		if tx.same(at, before, after) {
			if before != after {
				tx.set(at.table, before) // changed and changed back: it keeps its version
			}
			continue
		}
		tx.count(counts, at.table, before, -1)
		tx.count(counts, at.table, after, 1)
		id := tx.base.idOf(tableRow{at.table, cmp.Or(after, before)})
		c.ids = append(c.ids, id)
		c.rows = append(c.rows, rowChange{id, at.table, before, after})
	}
	if len(c.ids) == 0 {
		return tx.base, nil
	}
	slices.SortFunc(c.ids, compareIDs)
	c.ids = slices.Compact(c.ids)
	return tx.buildSnapshot(c.revision, counts), c
}

// buildSnapshot returns the snapshot after the transaction.
func (tx *Tx) buildSnapshot(revision uint64, counts []count) *Snapshot {
	next := *tx.base
	next.revision, next.data, next.counts = revision, tx.data, counts
	return &next
}

func (tx *Tx) count(counts []count, table int, r row, sign int) {
	if r == nil {
		return
	}
	c := &counts[table]
	c.rows += sign
	if table == tx.base.unknownTable() {
		return
	}
	tx.base.tables[table].totals(r, c.totals, sign)
}
