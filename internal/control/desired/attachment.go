package desired

import (
	"loxilb/internal/control/store"
	"loxilb/internal/kinds"
	"loxilb/internal/lb/policy"
)

// AttachedAt returns the policer or mirror that is attached to a target, for packets towards
// endpoints, or back to clients.
func AttachedAt[T any](t store.Table[T], now *store.Snapshot, to policy.AttachTo, name string, back bool) (found T, there bool) {
	for one := range t.Find(now, byUniqueValue, kinds.TargetOf(to, name, back)) {
		return one, true
	}
	return found, false
}
