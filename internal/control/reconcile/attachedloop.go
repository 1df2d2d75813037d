package reconcile

import (
	"cmp"
	"context"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
)

// attachedLoop is the loop of a kind of objects that are attached to services, firewall rules and
// interfaces: it applies them again when those appear or disappear.
type attachedLoop[T any] struct {
	*objectLoop[T]
}

// leftover is a key that makes the loop apply everything, including what an earlier process has
// left. No object has it as a name.
const leftover = ""

func newAttachedLoop[T any](kind string, w Worker[string], s *desired.State, table *store.Table[T], key func(*T) string, o Observers) attachedLoop[T] {
	l := attachedLoop[T]{newObjectLoop(kind, w, s, table, key, o)}
	l.applied = func() []string { return []string{leftover} }
	l.Loop.feed = l.feed
	l.Loop.name = func(key string) string { return cmp.Or(key, "all") }
	return l
}

// feed also marks objects that a change of services or firewall rules affects.
func (l attachedLoop[T]) feed(ctx context.Context) {
	if _, changed, ok := l.desired.Since(l.seen); ok && l.started {
		for _, id := range changed {
			if id.Kind == desired.ServiceKind || id.Kind == desired.RuleKind {
				l.Mark(leftover)
				break
			}
		}
	}
	l.objectLoop.feed(ctx)
}

// LinksChanged reports that any interface may have changed.
func (l attachedLoop[T]) LinksChanged() { l.Mark(leftover) }
