package desired

import (
	"fmt"

	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
)

// byTarget finds the objects attached to a target.
const byTarget = "target"

// targets returns the keys of an attachment: two objects of a kind must not share one.
func targets(a policy.Attachment) (list []string) {
	for _, back := range []bool{false, true} {
		if a.Direction.Has(back) {
			list = append(list, targetOf(a.To, a.Name, back))
		}
	}
	return list
}

// attachedAt finds the object attached to a target by name, for packets towards endpoints, or back.
func attachedAt[T any](t *store.Table[T], now *store.Snapshot, to policy.AttachTo, name string, back bool) (found T, there bool) {
	for one := range t.Find(now, byTarget, targetOf(to, name, back)) {
		return one, true
	}
	return found, false
}

func targetOf(to policy.AttachTo, name string, back bool) string {
	return fmt.Sprint(to, " ", name, " ", back)
}

// checkAttached refuses more objects of a kind than fit, and two at one place.
func checkAttached[T any](t *store.Table[T], kind string, most int, at func(T) policy.Attachment, before, after *store.Snapshot, changed []store.ID) error {
	if n := t.Len(after); n > most && n > t.Len(before) {
		return fmt.Errorf("a total of %d %ss %w of %d", n, kind, store.ErrLimit, most)
	}
	for _, id := range changed {
		if id.Kind != kind {
			continue
		}
		one, there := t.Get(after, id.Key)
		if !there {
			continue
		}
		for _, target := range targets(at(one)) {
			for other := range t.Find(after, byTarget, target) {
				if t.Key(other) != id.Key {
					return lb.NewFieldError(lb.FieldTarget, at(one).Name, "has "+kind+" "+t.Key(other)+" already", "one "+kind+" for each direction")
				}
			}
		}
	}
	return nil
}
