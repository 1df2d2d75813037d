package desired

import (
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// Instances is the table of roles.
type Instances struct {
	*store.Table[lb.Instance]
	place string // where this process is
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
