package desired

import (
	"encoding/json"

	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// MirrorKind is the name of the kind, as messages and journals have it.
const MirrorKind = "mirror"

// maxMirrors bounds them.
const maxMirrors = 1024

// Mirrors is the table of mirrors.
type Mirrors struct{ *store.Table[lb.Mirror] }

func newMirrors() *Mirrors {
	m := &Mirrors{}
	m.Table = store.NewTable(store.Kind[lb.Mirror]{
		Name:     MirrorKind,
		Key:      func(m lb.Mirror) string { return m.Name },
		Equal:    func(a, b lb.Mirror) bool { return a == b },
		Validate: lb.Mirror.Validate,
		Format:   1,
		Encode:   func(m lb.Mirror) (int, []byte, error) { b, err := json.Marshal(m); return 1, b, err },
		Decode:   func(_ int, object []byte) (m lb.Mirror, err error) { return m, store.DecodeStrict(object, &m) },
		Indexes: []store.Index[lb.Mirror]{
			{Name: byTarget, Values: func(m lb.Mirror) []string { return targets(m.Attachment) }},
		},
		Check: func(before, after *store.Snapshot, changed []store.ID) error {
			return checkAttached(m.Table, MirrorKind, maxMirrors, func(m lb.Mirror) lb.Attachment { return m.Attachment }, before, after, changed)
		},
	})
	return m
}

// At returns the mirror attached to a target by name, for packets towards endpoints, or back.
func (t *Mirrors) At(now *store.Snapshot, to lb.AttachTo, name string, back bool) (lb.Mirror, bool) {
	return attachedAt(t.Table, now, to, name, back)
}
