package desired

import (
	"encoding/json"
	"fmt"

	"loxilb/internal/lb"
	"loxilb/internal/store"
)

// PolicerKind is the name of the kind, as messages and journals have it.
const PolicerKind = "policer"

// maxPolicers bounds them, as the contract does.
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
		Check: p.check,
	})
	return p
}

// byTarget finds what is attached to something.
const byTarget = "target"

// targets are what an attachment is found by: no two of a kind may have one in common.
func targets(a lb.Attachment) (list []string) {
	for _, back := range []bool{false, true} {
		if a.Direction.Has(back) {
			list = append(list, fmt.Sprint(a.To, " ", a.Name, " ", back))
		}
	}
	return list
}

// check refuses more than fit, and two at one place.
func (p *Policers) check(before, after *store.Snapshot, changed []store.ID) error {
	if n := p.Len(after); n > maxPolicers && n > p.Len(before) {
		return fmt.Errorf("a total of %d policers %w of %d", n, store.ErrLimit, maxPolicers)
	}
	for _, id := range changed {
		if id.Kind != PolicerKind {
			continue
		}
		one, there := p.Get(after, id.Key)
		if !there {
			continue
		}
		for _, target := range targets(one.Attachment) {
			for other := range p.Find(after, byTarget, target) {
				if other.Name != one.Name {
					return lb.NewFieldError(lb.FieldTarget, one.Attachment.Name, "has policer "+other.Name+" already", "one policer for each direction")
				}
			}
		}
	}
	return nil
}
