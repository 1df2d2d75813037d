package desired

import (
	"encoding/json"

	"loxilb/internal/control/store"
	"loxilb/internal/lb/policy"
)

// PolicerKind is the name of the kind, as messages and journals have it.
const PolicerKind = "policer"

// maxPolicers is the contract's limit.
const maxPolicers = 8192

// Policers is the table of policers.
type Policers struct{ *store.Table[policy.Policer] }

func newPolicers() *Policers {
	p := &Policers{}
	p.Table = store.NewTable(store.Kind[policy.Policer]{
		Name:     PolicerKind,
		Key:      func(p policy.Policer) string { return p.Name },
		Equal:    func(a, b policy.Policer) bool { return a == b },
		Validate: policy.Policer.Validate,
		Format:   1,
		Encode:   func(p policy.Policer) (int, []byte, error) { b, err := json.Marshal(p); return 1, b, err },
		Decode:   func(_ int, object []byte) (p policy.Policer, err error) { return p, store.DecodeStrict(object, &p) },
		Indexes: []store.Index[policy.Policer]{
			{Name: byTarget, Values: func(p policy.Policer) []string { return targets(p.Attachment) }},
		},
		Check: func(before, after *store.Snapshot, changed []store.ID) error {
			return checkAttached(p.Table, PolicerKind, maxPolicers, func(p policy.Policer) policy.Attachment { return p.Attachment }, before, after, changed)
		},
	})
	return p
}

// At returns the policer attached to a target by name, for packets towards endpoints, or back.
func (t *Policers) At(now *store.Snapshot, to policy.AttachTo, name string, back bool) (policy.Policer, bool) {
	return attachedAt(t.Table, now, to, name, back)
}
