package desired

import (
	"fmt"
	"slices"

	"loxilb/internal/control/store"
	"loxilb/internal/kinds"
)

// InUseError refuses to delete an object that another one refers to.
type InUseError struct {
	Object string // with its kind, as in "set prefix/vips"
	By     string
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("%s is used by %s: change or delete that first", e.Object, e.By)
}

// checkSets refuses to delete a set that a policy refers to: the policy would no longer be applied,
// and neighbors would get every route. A policy may refer to a set that does not exist yet.
func (s *State) checkSets(_, after *store.Snapshot, changed []store.ID) error {
	deleted := deletedKeys(s.BGPSets, kinds.BGPSetName, after, changed)
	if len(deleted) == 0 {
		return nil
	}
	for p := range s.BGPPolicies.All(after) {
		for _, ref := range p.Sets() {
			if slices.Contains(deleted, ref.Key()) {
				return &InUseError{"set " + ref.Key(), "policy " + p.Name}
			}
		}
	}
	return nil
}

// checkPolicies refuses to delete a policy that is applied.
func (s *State) checkPolicies(_, after *store.Snapshot, changed []store.ID) error {
	deleted := deletedKeys(s.BGPPolicies, kinds.BGPPolicyName, after, changed)
	if len(deleted) == 0 {
		return nil
	}
	for a := range s.Applications.All(after) {
		for _, name := range a.Policies {
			if slices.Contains(deleted, name) {
				return &InUseError{"policy " + name, "the application at " + a.Key()}
			}
		}
	}
	return nil
}

// deletedKeys returns the keys of the objects of a kind that a commit deletes.
func deletedKeys[T any](t store.Table[T], kind string, after *store.Snapshot, changed []store.ID) (keys []string) {
	for _, id := range changed {
		if id.Kind != kind {
			continue
		}
		if _, there := t.Get(after, id.Key); !there {
			keys = append(keys, id.Key)
		}
	}
	return keys
}
