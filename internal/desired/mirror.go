package desired

import (
	"encoding/json"
	"fmt"

	"loxilb/internal/lb"
	"loxilb/internal/store"
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
		Check: m.check,
	})
	return m
}

// check refuses more than fit, and two at one place.
func (m *Mirrors) check(before, after *store.Snapshot, changed []store.ID) error {
	if n := m.Len(after); n > maxMirrors && n > m.Len(before) {
		return fmt.Errorf("a total of %d mirrors %w of %d", n, store.ErrLimit, maxMirrors)
	}
	for _, id := range changed {
		one, there := m.Get(after, id.Key)
		if id.Kind != MirrorKind || !there {
			continue
		}
		for _, target := range targets(one.Attachment) {
			for other := range m.Find(after, byTarget, target) {
				if other.Name != one.Name {
					return lb.NewFieldError(lb.FieldTarget, one.Attachment.Name, "has mirror "+other.Name+" already", "one mirror for each direction")
				}
			}
		}
	}
	return nil
}
