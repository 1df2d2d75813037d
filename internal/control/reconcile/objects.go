package reconcile

import (
	"context"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
)

// objectLoop is the loop of a kind with few objects: it is fed with the changes of the store.
type objectLoop[T any] struct {
	*Loop[string]
	Observers
	desired *desired.State
	table   *store.Table[T]
	key     func(*T) string
	applied func() []string // applied objects, including deleted ones; nil: none outlives its object
	seen    uint64          // revision up to which changes are marked
	started bool
}

func newObjectLoop[T any](kind string, w Worker[string], s *desired.State, table *store.Table[T], key func(*T) string, o Observers) *objectLoop[T] {
	l := &objectLoop[T]{Observers: o, desired: s, table: table, key: key}
	l.Loop = newLoop(kind, func(key string) string { return key }, w, o)
	l.Loop.watch, l.Loop.feed = s.Changed, l.feed
	return l
}

// feed marks the changes since the last time: all objects if that is not known.
func (l *objectLoop[T]) feed(context.Context) {
	now, changed, ok := l.desired.Since(l.seen)
	all := !ok || !l.started
	if !all && len(changed) == 0 {
		return
	}
	l.Statuses.Update(func(w *status.Writer) {
		if all {
			l.wantAll(w, now)
		}
		for _, id := range changed {
			if id.Kind == l.kind {
				l.want(w, now, id.Key)
			}
		}
		l.started, l.seen = true, now.Revision()
		w.Seen(l.kind, l.seen)
	})
}

func (l *objectLoop[T]) wantAll(w *status.Writer, now *store.Snapshot) {
	for object := range l.table.All(now) {
		l.want(w, now, l.key(&object))
	}
	if l.applied == nil {
		return
	}
	for _, key := range l.applied() {
		l.want(w, now, key)
	}
}

func (l *objectLoop[T]) want(w *status.Writer, now *store.Snapshot, key string) {
	meta, _ := l.table.Meta(now, key)
	w.Want(status.ID(l.table.ID(key)), meta.Version) // version 0: it was deleted
	l.MarkFirst(key)
}
