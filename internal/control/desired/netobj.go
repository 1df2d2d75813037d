package desired

import (
	"encoding/json"
	"fmt"

	"loxilb/internal/control/store"
	"loxilb/internal/lb/netobj"
)

// maxNetObjects bounds the objects of each kind of the kernel's network: they are compared with the
// kernel's together.
const maxNetObjects = 65536

// newNetObjects is the table of a kind of objects of the kernel's network.
func newNetObjects[T netobj.Object[T]](kind string) *store.Table[T] {
	var table *store.Table[T]
	table = store.NewTable(store.Kind[T]{
		Name:     kind,
		Key:      func(o T) string { return o.Key() },
		Equal:    func(a, b T) bool { return a == b },
		Validate: func(o T) error { return o.Validate() },
		Format:   1,
		Encode:   func(o T) (int, []byte, error) { b, err := json.Marshal(o); return 1, b, err },
		Decode: func(_ int, object []byte) (o T, err error) {
			err = store.DecodeStrict(object, &o)
			return o, err
		},
		Check: func(before, after *store.Snapshot, _ []store.ID) error {
			if n := table.Len(after); n > maxNetObjects && n > table.Len(before) {
				return fmt.Errorf("a total of %d objects of kind %s %w of %d", n, kind, store.ErrLimit, maxNetObjects)
			}
			return nil
		},
	})
	return table
}
