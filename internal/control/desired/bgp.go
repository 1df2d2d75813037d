package desired

import (
	"fmt"

	"loxilb/internal/control/store"
)

// UsedError refuses to delete an object that another one refers to.
type UsedError struct {
	Object string // with its kind, as in "set prefix/vips"
	By     string
}

func (e *UsedError) Error() string {
	return fmt.Sprintf("%s is used by %s: change or delete that first", e.Object, e.By)
}

// CheckPolicies refuses a transaction that deletes a set or policy of BGP which a policy or an
// application still has: all of the application would end, and its neighbor get every route. Those
// that never existed may come later. The cost grows with the policies.
func (s *State) CheckPolicies(tx *store.Tx) error {
	before := tx.Before()
	for p := range s.BGPPolicies.All(tx) {
		for _, ref := range p.Sets() {
			if isDeleted(s.BGPSets, before, tx, ref.Key()) {
				return &UsedError{"set " + ref.Key(), "policy " + p.Name}
			}
		}
	}
	for a := range s.Applications.All(tx) {
		for _, name := range a.Policies {
			if isDeleted(s.BGPPolicies, before, tx, name) {
				return &UsedError{"policy " + name, "the application at " + a.Key()}
			}
		}
	}
	return nil
}

// isDeleted reports whether a transaction deletes an object.
func isDeleted[T any](t *store.Table[T], before, now store.View, key string) bool {
	if _, there := t.Get(now, key); there {
		return false
	}
	_, was := t.Get(before, key)
	return was
}
