package desired

import (
	"loxilb/internal/control/store"
	"loxilb/internal/kinds"
)

// byUniqueValue is the index of kinds whose objects have unique values in addition to their keys.
const byUniqueValue = "unique value"

// add adds the table of a kind.
func add[T, B any](s *State, k *kinds.Kind[T, B]) store.Table[T] {
	return addTable(s, k, store.NewTable(storeKind(k)))
}

// addChecked adds the table of a kind whose commits are checked.
func addChecked[T, B any](s *State, k *kinds.Kind[T, B], check func(before, after *store.Snapshot, changed []store.ID) error) store.Table[T] {
	kind := storeKind(k)
	kind.Check = check
	return addTable(s, k, store.NewTable(kind))
}

func addTable[T, B any](s *State, k *kinds.Kind[T, B], t store.Table[T]) store.Table[T] {
	s.tables = append(s.tables, t)
	s.objects = append(s.objects, objects{k, &tableOf[T]{t, k.Stored.KeepHidden, k.Rename}})
	return t
}

// storeKind returns the store's definition of a kind.
func storeKind[T, B any](k *kinds.Kind[T, B]) store.Kind[T] {
	stored := &k.Stored
	kind := store.Kind[T]{
		Name: k.Name, Key: stored.Key, Equal: stored.Equal, Validate: stored.Validate, Clone: stored.Clone,
		Format: stored.Format, Encode: stored.Encode, Decode: stored.Decode, Max: stored.Max, Plural: stored.Plural,
		Urgent: stored.Urgent, Shared: stored.Shared,
	}
	if stored.UniqueValues != nil {
		kind.Indexes = []store.Index[T]{{Name: byUniqueValue, Values: stored.UniqueValues, RefuseDuplicate: stored.RefuseDuplicate}}
	}
	return kind
}
