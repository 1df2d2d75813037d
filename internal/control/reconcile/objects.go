package reconcile

import (
	"context"
	"slices"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
)

// objectLoop is the loop of a kind with few objects. The changes of the store feed it.
type objectLoop[T any] struct {
	*Loop[string]
	Observers
	desired *desired.State
	table   store.Table[T]
	// affects, if set, reports whether a change of an object of another kind affects objects of
	// this kind; markAffected then marks them.
	affects      func(kind string) bool
	markAffected func(*store.Snapshot)
	// applied, if set, returns the keys of applied objects, including deleted ones. Without it,
	// applied objects do not outlive the process.
	applied func() []string
	seen    uint64 // revision up to which changes are marked
	started bool
}

func newObjectLoop[T any](w Worker[string], s *desired.State, table store.Table[T], o Observers) *objectLoop[T] {
	l := &objectLoop[T]{Observers: o, desired: s, table: table}
	l.Loop = newLoop(table.Name(), func(key string) string { return key }, w, o)
	l.Loop.watch, l.Loop.feed = s.Changed, l.feed
	return l
}

// feed marks objects that changed since the last call, or all objects if that is unknown.
func (l *objectLoop[T]) feed(context.Context) {
	snapshot, changed, ok := l.desired.Since(l.seen)
	all := !ok || !l.started
	if !all && len(changed) == 0 {
		return
	}
	l.Statuses.Update(func(w *status.Writer) {
		if all {
			l.wantAll(w, snapshot)
		}
		for _, id := range changed {
			if id.Kind == l.kind {
				l.want(w, snapshot, id.Key)
			}
		}
		l.started, l.seen = true, snapshot.Revision()
		w.Seen(l.kind, l.seen)
	})
	if !all && l.affects != nil && slices.ContainsFunc(changed, func(id store.ID) bool { return l.affects(id.Kind) }) {
		l.markAffected(snapshot)
	}
}

// applyEach calls apply for each object, and returns the errors as outcomes. snapshot must not be
// newer than the state that apply applies: otherwise a version counts as applied too early.
func (l *objectLoop[T]) applyEach(snapshot *store.Snapshot, keys []string, apply func(object T, exists bool, key string) error) []Outcome[string] {
	out := make([]Outcome[string], len(keys))
	for i, key := range keys {
		object, exists := l.table.Get(snapshot, key)
		meta, _ := l.table.Meta(snapshot, key)
		out[i] = Outcome[string]{Key: key, Version: meta.Version, Err: apply(object, exists, key)}
	}
	return out
}

func (l *objectLoop[T]) wantAll(w *status.Writer, snapshot *store.Snapshot) {
	for object := range l.table.All(snapshot) {
		l.want(w, snapshot, l.table.Key(object))
	}
	if l.applied == nil {
		return
	}
	for _, key := range l.applied() {
		l.want(w, snapshot, key)
	}
}

func (l *objectLoop[T]) want(w *status.Writer, snapshot *store.Snapshot, key string) {
	meta, _ := l.table.Meta(snapshot, key)
	w.Want(status.ID(l.table.ID(key)), meta.Version) // version 0: deleted
	l.MarkFirst(key)
}
