package desired

import (
	"encoding/json"

	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// PolicerKind is the name of the kind, as messages and journals have it.
const PolicerKind = "policer"

// maxPolicers is the contract's limit.
const maxPolicers = 8192

// Policers is the table of policers.
type Policers struct{ *store.Table[lb.Policer] }

func newPolicers() *Policers {
	p := &Policers{}
	p.Table = store.NewTable(store.Kind[lb.Policer]{
		Name:     PolicerKind,
		Key:      func(p lb.Policer) string { return p.Name },
		Equal:    func(a, b lb.Policer) bool { return a == b },
		Validate: lb.Policer.Validate,
		Format:   1,
		Encode:   func(p lb.Policer) (int, []byte, error) { b, err := json.Marshal(p); return 1, b, err },
		Decode:   func(_ int, object []byte) (p lb.Policer, err error) { return p, store.DecodeStrict(object, &p) },
		Indexes: []store.Index[lb.Policer]{
			{Name: byTarget, Values: func(p lb.Policer) []string { return targets(p.Attachment) }},
		},
		Check: func(before, after *store.Snapshot, changed []store.ID) error {
			return checkAttached(p.Table, PolicerKind, maxPolicers, func(p lb.Policer) lb.Attachment { return p.Attachment }, before, after, changed)
		},
	})
	return p
}

// At returns the policer attached to a target by name, for packets towards endpoints, or back.
func (t *Policers) At(now *store.Snapshot, to lb.AttachTo, name string, back bool) (lb.Policer, bool) {
	return attachedAt(t.Table, now, to, name, back)
}
