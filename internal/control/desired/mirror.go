package desired

import (
	"encoding/json"

	"loxilb/internal/control/store"
	"loxilb/internal/lb/policy"
)

// MirrorKind is the name of the kind, as messages and journals have it.
const MirrorKind = "mirror"

// maxMirrors bounds them.
const maxMirrors = 1024

// Mirrors is the table of mirrors.
type Mirrors struct{ *store.Table[policy.Mirror] }

func newMirrors() *Mirrors {
	m := &Mirrors{}
	m.Table = store.NewTable(store.Kind[policy.Mirror]{
		Name:     MirrorKind,
		Key:      func(m policy.Mirror) string { return m.Name },
		Equal:    func(a, b policy.Mirror) bool { return a == b },
		Validate: policy.Mirror.Validate,
		Format:   1,
		Encode:   func(m policy.Mirror) (int, []byte, error) { b, err := json.Marshal(m); return 1, b, err },
		Decode:   func(_ int, object []byte) (m policy.Mirror, err error) { return m, store.DecodeStrict(object, &m) },
		Indexes: []store.Index[policy.Mirror]{
			{Name: byTarget, Values: func(m policy.Mirror) []string { return targets(m.Attachment) }},
		},
		Check: func(before, after *store.Snapshot, changed []store.ID) error {
			return checkAttached(m.Table, MirrorKind, maxMirrors, func(m policy.Mirror) policy.Attachment { return m.Attachment }, before, after, changed)
		},
	})
	return m
}

// At returns the mirror attached to a target by name, for packets towards endpoints, or back.
func (t *Mirrors) At(now *store.Snapshot, to policy.AttachTo, name string, back bool) (policy.Mirror, bool) {
	return attachedAt(t.Table, now, to, name, back)
}
