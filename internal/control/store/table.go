package store

import (
	"fmt"
	"iter"
	"slices"
)

// Table gives access to the objects of one kind, in all views of a store. It is created once, and
// passed to Open. It is an interface because Go compiles all methods of a generic struct in each
// package that can see it: with 25 kinds, that took most of the time of many packages.
type Table[T any] interface {
	AnyTable
	// Name returns the name of the kind.
	Name() string
	// ID returns the ID of the object with a key.
	ID(key string) ID
	// Key returns the key of an object.
	Key(value T) string
	// Get returns the object with a key. The result shares memory with the store: do not change it.
	Get(v View, key string) (T, bool)
	// GetSorted is Get by the sort key.
	GetSorted(v View, sortKey string) (T, bool)
	// Shared returns a pointer to the store's object, and its metadata, for readers that keep many
	// objects: do not change the object. nil: it does not exist.
	Shared(v View, sortKey string) (*T, Meta)
	// Meta returns the owner and version of an object; false: it does not exist.
	Meta(v View, key string) (Meta, bool)
	// All yields the objects in the order of their sort keys, as they are when the loop begins. The
	// loop may change them in its transaction.
	All(v View) iter.Seq[T]
	// EachShared yields pointers to all objects, like Shared, in the order of their sort keys.
	EachShared(v View) iter.Seq[*T]
	// Prefix yields, in order, the objects whose sort key begins with prefix.
	Prefix(v View, prefix string) iter.Seq[T]
	// Find yields the objects with a value in an index, in the order of their sort keys.
	Find(v View, index, value string) iter.Seq[T]
	// FindPrefix yields the objects with a value in an index that begins with prefix, in the order
	// of these values. It yields an object once for each such value.
	FindPrefix(v View, index, prefix string) iter.Seq[T]
	// First returns the first object of Prefix.
	First(v View, prefix string) (T, bool)
	// Len returns the number of objects.
	Len(s *Snapshot) int
	// Total returns the sum of the i-th function of Kind.Totals over all objects.
	Total(s *Snapshot, i int) int
	// Put creates an object, or replaces the one with its key. It returns the error of
	// Kind.Validate, and ErrOwner if the existing object has another owner. Kind.Check runs when
	// the transaction ends.
	Put(tx *Tx, value T) error
	// Delete removes an object. It returns ErrNotFound if the object is missing, and ErrOwner if it
	// has another owner.
	Delete(tx *Tx, key string) error
	// Differences yields the objects of this kind that the transaction has changed so far, in the
	// order of their sort keys: before and after, nil if missing. The cost is proportional to the
	// size of the transaction. Do not change the objects.
	Differences(tx *Tx) iter.Seq2[*T, *T]
}

// kindTable implements Table.
type kindTable[T any] struct {
	kind  Kind[T]
	index int  // index in Snapshot.tables
	open  bool // it belongs to a store
}

// NewTable returns the table of a kind.
func NewTable[T any](kind Kind[T]) Table[T] { return &kindTable[T]{kind: kind} }

func (t *kindTable[T]) Name() string { return t.kind.Name }

func (t *kindTable[T]) ID(key string) ID { return ID{t.kind.Name, key} }

func (t *kindTable[T]) Key(value T) string { return t.kind.Key(value) }

func (t *kindTable[T]) Get(v View, key string) (T, bool) {
	sortKey, ok := t.sortKeyOf(key)
	if !ok {
		var none T
		return none, false
	}
	return t.GetSorted(v, sortKey)
}

func (t *kindTable[T]) GetSorted(v View, sortKey string) (T, bool) {
	return t.value(v.row(t.index, sortKey))
}

func (t *kindTable[T]) Shared(v View, sortKey string) (*T, Meta) {
	r := v.row(t.index, sortKey)
	if r == nil {
		return nil, Meta{}
	}
	return &r.(*object[T]).value, r.header().Meta
}

func (t *kindTable[T]) Meta(v View, key string) (Meta, bool) {
	if sortKey, ok := t.sortKeyOf(key); ok {
		return metaOf(v.row(t.index, sortKey))
	}
	return Meta{}, false
}

func (t *kindTable[T]) All(v View) iter.Seq[T] { return t.Prefix(v, "") }

func (t *kindTable[T]) EachShared(v View) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for r := range v.rows(t.index, primaryIndex, "") {
			if !yield(&r.(*object[T]).value) {
				return
			}
		}
	}
}

func (t *kindTable[T]) Prefix(v View, prefix string) iter.Seq[T] {
	return t.values(v.rows(t.index, primaryIndex, prefix))
}

func (t *kindTable[T]) Find(v View, index, value string) iter.Seq[T] {
	return t.FindPrefix(v, index, value+"\x00")
}

func (t *kindTable[T]) FindPrefix(v View, index, prefix string) iter.Seq[T] {
	return t.values(v.rows(t.index, t.indexNumber(index), prefix))
}

func (t *kindTable[T]) First(v View, prefix string) (T, bool) {
	return t.value(v.first(t.index, prefix))
}

func (t *kindTable[T]) Len(s *Snapshot) int { return s.counts[t.index].rows }

func (t *kindTable[T]) Total(s *Snapshot, i int) int { return s.counts[t.index].totals[i] }

func (t *kindTable[T]) Put(tx *Tx, value T) error {
	if t.kind.Validate != nil {
		if err := t.kind.Validate(value); err != nil {
			return err
		}
	}
	key := t.kind.Key(value)
	sortKey, ok := t.sortKeyOf(key)
	if !ok {
		return fmt.Errorf("%s is not a key of a %s", key, t.kind.Name)
	}
	kept := tx.unknownRecord(t.ID(key))
	old := tx.row(t.index, sortKey)
	if err := tx.checkOwner(t.ID(key), old, kept); err != nil {
		return err
	}
	if old != nil && t.kind.Equal(old.(*object[T]).value, value) {
		return nil
	}
	if t.kind.Clone != nil {
		value = t.kind.Clone(value)
	}
	if kept != nil {
		tx.remove(tx.base.unknownTable(), kept)
	}
	tx.set(t.index, &object[T]{rowHeader{sortKey, Meta{Owner: tx.owner, Version: tx.revision()}}, value})
	return nil
}

func (t *kindTable[T]) Delete(tx *Tx, key string) error { return tx.Delete(t.ID(key)) }

func (t *kindTable[T]) Differences(tx *Tx) iter.Seq2[*T, *T] {
	var sorts []string
	for at, after := range tx.touched {
		if at.table == t.index && !tx.same(at, tx.base.row(at.table, at.sortKey), after) {
			sorts = append(sorts, at.sortKey)
		}
	}
	slices.Sort(sorts)
	return func(yield func(before, after *T) bool) {
		for _, sortKey := range sorts {
			before, _ := t.Shared(tx.base, sortKey)
			after, _ := t.Shared(tx, sortKey)
			if !yield(before, after) {
				return
			}
		}
	}
}

func (t *kindTable[T]) values(rows iter.Seq[row]) iter.Seq[T] {
	return func(yield func(T) bool) {
		for r := range rows {
			if !yield(r.(*object[T]).value) {
				return
			}
		}
	}
}

func (t *kindTable[T]) value(r row) (value T, ok bool) {
	if r == nil {
		return value, false
	}
	return r.(*object[T]).value, true
}

func metaOf(r row) (Meta, bool) {
	if r == nil {
		return Meta{}, false
	}
	return r.header().Meta, true
}

// The following methods implement AnyTable.

func (o *object[T]) any() any { return o.value }

func (t *kindTable[T]) attach(table int) error {
	if t.open {
		return fmt.Errorf("the table of kind %s belongs to another store", t.kind.Name)
	}
	t.index, t.open = table, true
	return t.kind.complete()
}

func (t *kindTable[T]) info() kindInfo {
	return kindInfo{t.kind.Name, t.kind.Bare, len(t.kind.Totals), t.kind.Urgent, t.kind.Shared}
}

func (t *kindTable[T]) indexes() int { return len(t.kind.Indexes) }

func (t *kindTable[T]) sortKeyOf(key string) (string, bool) {
	if t.kind.Sort == nil {
		return key, true
	}
	return t.kind.Sort(key)
}

func (t *kindTable[T]) keyOf(r row) string { return t.kind.Key(r.(*object[T]).value) }

func (t *kindTable[T]) same(a, b row) bool {
	x, y := a.(*object[T]), b.(*object[T])
	return x == y || x.Owner == y.Owner && t.kind.Equal(x.value, y.value)
}

func (t *kindTable[T]) withMeta(r row, meta Meta) row {
	o := *r.(*object[T])
	o.Meta = meta
	return &o
}

func (t *kindTable[T]) totals(r row, sum []int, sign int) {
	for i, count := range t.kind.Totals {
		sum[i] += sign * count(r.(*object[T]).value)
	}
}

func (t *kindTable[T]) encode(r row) (record, error) {
	format, data, err := t.kind.Encode(r.(*object[T]).value)
	return record{Kind: t.kind.Name, Format: format, Key: t.keyOf(r), Object: data}, err
}

func (t *kindTable[T]) decode(format int, data []byte) (row, error) {
	if format > t.kind.Format {
		return nil, errNewerFormat
	}
	value, err := t.kind.Decode(format, data)
	if err != nil {
		return nil, err
	}
	sortKey, ok := t.sortKeyOf(t.kind.Key(value))
	if !ok {
		return nil, fmt.Errorf("%s is not a key of a %s", t.kind.Key(value), t.kind.Name)
	}
	return &object[T]{rowHeader: rowHeader{sortKey: sortKey}, value: value}, nil
}

func (t *kindTable[T]) check(before, after *Snapshot, changed []ID) error {
	if t.kind.Max > 0 {
		objects := Total{t.kind.Plural, t.Len(before), t.Len(after), t.kind.Max}
		if err := objects.Check(); err != nil {
			return err
		}
	}
	for _, index := range t.kind.Indexes {
		if index.RefuseDuplicate == nil {
			continue
		}
		if err := t.checkDuplicates(index, after, changed); err != nil {
			return err
		}
	}
	if t.kind.Check == nil {
		return nil
	}
	return t.kind.Check(before, after, changed)
}

// checkDuplicates refuses changed objects that have the same value in an index as another object.
func (t *kindTable[T]) checkDuplicates(index Index[T], after *Snapshot, changed []ID) error {
	for _, id := range changed {
		if id.Kind != t.kind.Name {
			continue
		}
		value, exists := t.Get(after, id.Key)
		if !exists {
			continue
		}
		for _, indexed := range index.Values(value) {
			for other := range t.Find(after, index.Name, indexed) {
				if key := t.Key(other); key != id.Key {
					return index.RefuseDuplicate(value, key)
				}
			}
		}
	}
	return nil
}

// A Total is a limited count before and after a change.
type Total struct {
	What          string
	Before, After int
	Limit         int
}

// Check returns an error if the change exceeds the limit. A total over its limit, which an earlier
// version allowed, may shrink.
func (t *Total) Check() error {
	if t.After > t.Limit && t.After > t.Before {
		return fmt.Errorf("a total of %d %s %w of %d", t.After, t.What, ErrLimit, t.Limit)
	}
	return nil
}
