package desired

import (
	"iter"

	"loxilb/internal/control/store"
	"loxilb/internal/kinds"
)

// Objects gives access to the objects of a kind, for code that handles all kinds alike.
type Objects interface {
	kinds.Any
	// ID returns the ID of the object with a key.
	ID(key string) store.ID
	// Key returns the key of an object.
	Key(object any) string
	// Meta returns the owner and the version of an object.
	Meta(v store.View, key string) (store.Meta, bool)
	// Find returns the object with a key, or nil.
	Find(v store.View, key string) any
	// All yields the objects in the order of their keys.
	All(v store.View) iter.Seq[any]
	// Put creates an object, or replaces the one with its key.
	Put(tx *store.Tx, object any) error
}

// objectsOf implements Objects by the table of a kind.
type objectsOf[T, B any] struct {
	kinds.Kind[T, B]
	table store.Table[T]
}

func (o objectsOf[T, B]) ID(key string) store.ID { return o.table.ID(key) }

func (o objectsOf[T, B]) Key(object any) string { return o.table.Key(object.(T)) }

func (o objectsOf[T, B]) Meta(v store.View, key string) (store.Meta, bool) {
	return o.table.Meta(v, key)
}

func (o objectsOf[T, B]) Find(v store.View, key string) any {
	object, ok := o.table.Get(v, key)
	if !ok {
		return nil
	}
	return object
}

func (o objectsOf[T, B]) All(v store.View) iter.Seq[any] {
	return func(yield func(any) bool) {
		for object := range o.table.All(v) {
			if !yield(object) {
				return
			}
		}
	}
}

func (o objectsOf[T, B]) Put(tx *store.Tx, object any) error {
	wanted := object.(T)
	if keepHidden := o.Stored.KeepHidden; keepHidden != nil {
		stored, _ := o.table.Get(tx, o.table.Key(wanted))
		kept, err := keepHidden(wanted, stored)
		if err != nil {
			return o.Rename(err)
		}
		wanted = kept
	}
	return o.table.Put(tx, wanted)
}
