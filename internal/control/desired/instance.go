package desired

import (
	"encoding/json"
	"fmt"

	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// InstanceKind is the name of the kind, as messages and journals have it: the role of this node for
// the services of an instance.
const InstanceKind = "instance"

// maxInstances bounds the number of instances: a change of one visits all VIPs.
const maxInstances = 1024

// Instances is the table of roles.
type Instances struct {
	*store.Table[lb.Instance]
	place string // where this process is
}

func newInstances(place string) *Instances {
	i := &Instances{place: place}
	i.Table = store.NewTable(store.Kind[lb.Instance]{
		Name:     InstanceKind,
		Key:      func(i lb.Instance) string { return i.Key() },
		Equal:    func(a, b lb.Instance) bool { return a == b },
		Validate: func(i lb.Instance) error { return i.Validate() },
		Format:   1,
		Encode:   func(i lb.Instance) (int, []byte, error) { b, err := json.Marshal(i); return 1, b, err },
		Decode: func(_ int, object []byte) (i lb.Instance, err error) {
			err = store.DecodeStrict(object, &i)
			return i, err
		},
		Check: func(before, after *store.Snapshot, _ []store.ID) error {
			if n := i.Len(after); n > maxInstances && n > i.Len(before) {
				return fmt.Errorf("a total of %d instances %w of %d", n, store.ErrLimit, maxInstances)
			}
			return nil
		},
	})
	return i
}

// Put notes the role of an instance, as of here.
func (i *Instances) Put(tx *store.Tx, one lb.Instance) error {
	one.Place = i.place
	return i.Table.Put(tx, one)
}

// Here returns the instances by key, as they are at this place.
func (i *Instances) Here(v store.View) map[string]lb.Instance {
	here := make(map[string]lb.Instance)
	for one := range i.All(v) {
		here[one.Key()] = one.At(i.place)
	}
	return here
}
