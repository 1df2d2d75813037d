package desired

import (
	"iter"

	"loxilb/internal/control/store"
	"loxilb/internal/kinds"
)

// Objects gives access to the objects of a kind, for code that handles all kinds alike.
type Objects interface {
	kinds.Any
	objectTable
}

// objectTable is the part of Objects that needs the table.
type objectTable interface {
	// ID returns the ID of the object with a key.
	ID(key string) store.ID
	// Key returns the key of an object.
	Key(object any) string
	// Meta returns the owner of an object, and its version.
	Meta(v store.View, key string) (store.Meta, bool)
	// Find returns the object with a key, or nil.
	Find(v store.View, key string) any
	// All yields the objects in the order of their keys.
	All(v store.View) iter.Seq[any]
	// Put creates an object, or replaces the one with its key.
	Put(tx *store.Tx, object any) error
}

// objects implements Objects by a kind and its table.
type objects struct {
	kinds.Any
	objectTable
}

// tableOf implements objectTable by the table of a kind. The kind itself stays outside: Go would
// compile its methods once more for each kind.
type tableOf[T any] struct {
	table      store.Table[T]
	keepHidden func(wanted, stored T) (T, error) // nil: nothing is hidden
	rename     func(error) error
}

func (o *tableOf[T]) ID(key string) store.ID { return o.table.ID(key) }

func (o *tableOf[T]) Key(object any) string { return o.table.Key(object.(T)) }

func (o *tableOf[T]) Meta(v store.View, key string) (store.Meta, bool) { return o.table.Meta(v, key) }

func (o *tableOf[T]) Find(v store.View, key string) any {
	object, ok := o.table.Get(v, key)
	if !ok {
		return nil
	}
	return object
}

func (o *tableOf[T]) All(v store.View) iter.Seq[any] {
	return func(yield func(any) bool) {
		for object := range o.table.All(v) {
			if !yield(object) {
				return
			}
		}
	}
}

func (o *tableOf[T]) Put(tx *store.Tx, object any) error {
	wanted := object.(T)
	if o.keepHidden != nil {
		stored, _ := o.table.Get(tx, o.table.Key(wanted))
		kept, err := o.keepHidden(wanted, stored)
		if err != nil {
			return o.rename(err)
		}
		wanted = kept
	}
	return o.table.Put(tx, wanted)
}
