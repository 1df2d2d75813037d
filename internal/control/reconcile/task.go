package reconcile

import "context"

// TaskKind is the kind of the statuses of tasks.
const TaskKind = "network"

// Task is a single piece of work that can fail and be retried like objects: the data path's view of
// default routes, of this machine's addresses, of next hops.
type Task struct {
	*Loop[string]
	key string
}

// NewTask makes a task of this name. f does all of the work and is idempotent. share bounds the
// share of time that it takes when it is marked continuously: 20 is a twentieth; 0: all of it.
func NewTask(name string, share int, f func(context.Context) error, o Observers) *Task {
	t := &Task{newLoop(TaskKind, func(k string) string { return k }, workerFunc(f), o), name}
	t.share = share
	return t
}

// Mark makes the task due now.
func (t *Task) Mark() { t.Loop.Mark(t.key) }

// workerFunc is a worker of one object.
type workerFunc func(context.Context) error

// Apply runs it once, whatever the keys are.
func (f workerFunc) Apply(ctx context.Context, keys []string) []Outcome[string] {
	out := make([]Outcome[string], len(keys))
	err := f(ctx)
	for i, k := range keys {
		out[i] = Outcome[string]{Key: k, Version: 1, Err: err}
	}
	return out
}
