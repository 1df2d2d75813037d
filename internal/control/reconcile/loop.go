// Package reconcile applies desired objects to the kernel and its network: a loop for each kind,
// which records the status of each object and retries failures.
package reconcile

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"loxilb/internal/control/status"
	"loxilb/internal/event"
	"loxilb/internal/host/monotime"
)

const (
	// firstRetry and lastRetry bound the wait before a retry. Each wait is half as long again
	// as the previous one, with a random factor, so objects that fail together are not retried
	// together forever.
	firstRetry = 250 * time.Millisecond
	lastRetry  = 30 * time.Second
	// batchSize bounds the objects of one pass: their compiled tables are in memory together,
	// and a change of one object waits for the pass before it.
	batchSize = 256
	// longestRest bounds the delay until a change of the network is followed, in a storm of
	// changes.
	longestRest = 2 * time.Second
	// loggedOutcomes bounds the log lines of a pass for failures, and those for recoveries.
	// Statuses and events cover all objects.
	loggedOutcomes = 5
)

// Outcome is the result for one object in a pass.
type Outcome[K comparable] struct {
	Key     K
	Version uint64 // applied or tried version; 0: the object was deleted
	Err     error  // nil: applied
	Waits   bool   // Err depends on another object: the worker marks the key when that changes
}

// Worker applies objects of one kind.
type Worker[K comparable] interface {
	// Apply applies the current state of the objects of these keys, and reports on each of
	// them. It may report on others that it changed with them. It is idempotent.
	Apply(ctx context.Context, keys []K) []Outcome[K]
}

// Loop keeps the objects of one kind applied: it collects due keys, passes them to the worker,
// records the result as the status of each object, and retries failures, each object independently.
//
// client-go's workqueue hands out one key at a time. Here a pass takes many due keys, so 10,000
// services share netlink round trips and walks over tables.
type Loop[K comparable] struct {
	kind     string
	name     func(K) string // the key in words
	worker   Worker[K]
	statuses *status.Table
	hub      *event.Hub
	log      *slog.Logger

	// watch and feed, if set, add due keys from a source of changes: the goroutine of Run calls
	// feed before each pass, and wakes up for it when the channel that watch returned before is
	// closed.
	watch func() <-chan struct{}
	feed  func(context.Context)
	// rest bounds the share of time of passes, for work that bursts of events request: after
	// each pass, the loop rests this many times as long as the pass took, up to longestRest,
	// since a pass may have waited for a lock. 0: it does not rest.
	rest int
	// together makes a pass take all keys that are due: the worker rebuilds all objects anyway.
	together bool

	mu        sync.Mutex
	dirty     map[K]struct{}
	urgent    []K // dirty keys with a waiting request, in order of arrival
	queue     []K // other keys, and keys that were already taken from urgent
	dirtyPeak int // largest length of dirty since it was made
	wake      chan struct{}
	calls     chan func() // functions to call between passes

	// touched by Run only
	retries  map[K]*retry
	waiting  map[K]struct{} // failed, and waiting for other objects
	starting map[K]struct{} // due at the start and not tried yet; nil: Run has not begun
	idle     chan struct{}
}

// retry is when a failed object is retried.
type retry struct {
	backoff *backoff.ExponentialBackOff
	due     time.Time
}

func newLoop[K comparable](kind string, name func(K) string, w Worker[K], o Observers) *Loop[K] {
	return &Loop[K]{
		kind: kind, name: name, worker: w, statuses: o.Statuses, hub: o.Events, log: o.Log,
		dirty: map[K]struct{}{}, wake: make(chan struct{}, 1), calls: make(chan func()), retries: map[K]*retry{}, waiting: map[K]struct{}{}, idle: make(chan struct{}),
	}
}

// Observers are notified of the progress of objects.
type Observers struct {
	Statuses *status.Table
	Events   *event.Hub
	Log      *slog.Logger
}

// Mark makes objects due now.
func (l *Loop[K]) Mark(keys ...K) { l.mark(&l.queue, keys) }

// MarkFirst makes objects due before all others: requests wait for them.
func (l *Loop[K]) MarkFirst(keys ...K) { l.mark(&l.urgent, keys) }

func (l *Loop[K]) mark(queue *[]K, keys []K) {
	if len(keys) == 0 {
		return // feed calls Mark, and must not wake its own loop for nothing
	}
	l.mu.Lock()
	for _, k := range keys {
		if _, ok := l.dirty[k]; !ok || queue == &l.urgent {
			l.dirty[k] = struct{}{}
			*queue = append(*queue, k)
		}
	}
	l.dirtyPeak = max(l.dirtyPeak, len(l.dirty))
	l.mu.Unlock()
	l.Wake()
}

// Wake makes Run check for due keys.
func (l *Loop[K]) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Idle is closed once everything that was due at the start of Run has been tried.
func (l *Loop[K]) Idle() <-chan struct{} { return l.idle }

// Run applies until ctx ends.
func (l *Loop[K]) Run(ctx context.Context) {
	for ctx.Err() == nil {
		var changed <-chan struct{}
		if l.watch != nil {
			changed = l.watch() // before feed, so no change is missed
			l.feed(ctx)
		}
		if l.starting == nil {
			l.begin()
		}
		select {
		case f := <-l.calls:
			f()
		default:
		}
		began := time.Now()
		if batch := l.nextBatch(began); len(batch) > 0 {
			l.report(ctx, l.worker.Apply(ctx, batch))
			l.markTried(batch)
			// keys that are marked during the rest are due after it
			monotime.Sleep(ctx, min(longestRest, time.Duration(l.rest)*time.Since(began)))
			continue
		}
		timer := l.timer()
		select {
		case <-ctx.Done():
		case <-changed:
		case <-l.wake:
		case f := <-l.calls:
			f()
		case <-timer:
		}
	}
}

// betweenPasses calls f between two passes, so f may read everything that Apply writes. It returns
// an error if ctx ends first.
func (l *Loop[K]) betweenPasses(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case l.calls <- func() { f(); close(done) }:
		<-done
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// due reports whether a key must be applied.
func (l *Loop[K]) due(k K) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, dirty := l.dirty[k]
	return dirty
}

// begin records the keys that are due at the start.
func (l *Loop[K]) begin() {
	l.mu.Lock()
	l.starting = maps.Clone(l.dirty)
	l.mu.Unlock()
	if len(l.starting) == 0 {
		close(l.idle)
	}
}

// markTried closes idle when everything due at the start has been tried. Later changes do not delay
// that.
func (l *Loop[K]) markTried(batch []K) {
	if len(l.starting) == 0 {
		return
	}
	for _, k := range batch {
		delete(l.starting, k)
	}
	if len(l.starting) == 0 {
		close(l.idle)
	}
}

// nextBatch removes a batch of due keys: marked ones first, then due retries.
func (l *Loop[K]) nextBatch(now time.Time) []K {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch := l.drain(&l.queue, l.drain(&l.urgent, nil))
	if len(l.dirty) == 0 && l.dirtyPeak > batchSize {
		l.dirty, l.dirtyPeak = map[K]struct{}{}, 0 // a map that was large keeps its memory
	}
	for k, r := range l.retries {
		if _, marked := l.dirty[k]; !marked && !r.due.After(now) && (l.together || len(batch) < batchSize) {
			batch = append(batch, k)
			r.due = now.Add(lastRetry) // in case the worker does not report on it
		}
	}
	return unique(batch)
}

// drain moves dirty keys from a queue to the batch, as long as there is room.
func (l *Loop[K]) drain(queue *[]K, batch []K) []K {
	n := 0
	for ; n < len(*queue) && (l.together || len(batch) < batchSize); n++ {
		k := (*queue)[n]
		if _, ok := l.dirty[k]; ok {
			delete(l.dirty, k)
			batch = append(batch, k)
		}
	}
	*queue = (*queue)[n:]
	if len(*queue) == 0 {
		*queue = nil
	}
	return batch
}

func unique[K comparable](keys []K) []K {
	seen := make(map[K]struct{}, len(keys))
	out := keys[:0]
	for _, k := range keys {
		if _, ok := seen[k]; !ok {
			seen[k] = struct{}{}
			out = append(out, k)
		}
	}
	return out
}

// timer fires when the next retry is due, or is nil without any.
func (l *Loop[K]) timer() <-chan time.Time {
	var next time.Time
	for _, r := range l.retries {
		if next.IsZero() || r.due.Before(next) {
			next = r.due
		}
	}
	if next.IsZero() {
		return nil
	}
	return time.After(time.Until(next))
}

// report records outcomes, unless ctx ended during the pass.
func (l *Loop[K]) report(ctx context.Context, outcomes []Outcome[K]) {
	if ctx.Err() != nil {
		return
	}
	n := passReport{events: make([]event.Body, 0, len(outcomes))}
	l.statuses.Update(func(w *status.Writer) {
		for i := range outcomes {
			l.recordOutcome(w, &n, &outcomes[i])
		}
	})
	l.hub.Publish(n.events...)
	for _, f := range n.failed[:min(len(n.failed), loggedOutcomes)] {
		l.log.Error("object cannot be applied; trying again", "kind", f.ObjectKind, "key", f.Key,
			"error", f.Error, "next_try", nextTry(f.next))
	}
	if more := len(n.failed) - loggedOutcomes; more > 0 {
		l.log.Error("more objects cannot be applied", "kind", l.kind, "count", more,
			"hint", "loxicmd get status --failed")
	}
	for _, key := range n.recovered[:min(len(n.recovered), loggedOutcomes)] {
		l.log.Info("object is applied again", "kind", l.kind, "key", key)
	}
	if more := len(n.recovered) - loggedOutcomes; more > 0 {
		l.log.Info("more objects are applied again", "kind", l.kind, "count", more)
	}
}

func nextTry(at time.Time) string {
	if at.IsZero() {
		return "when another object changes"
	}
	return at.Format(time.RFC3339)
}

// passReport collects the events and log entries of a pass.
type passReport struct {
	events    []event.Body
	failed    []failedObject
	recovered []string // keys
}

type failedObject struct {
	event.Object
	next time.Time
}

// recordOutcome writes the status of one object.
func (l *Loop[K]) recordOutcome(w *status.Writer, report *passReport, o *Outcome[K]) {
	id := status.ID{Kind: l.kind, Key: l.name(o.Key)}
	if o.Version != 0 {
		w.Want(id, o.Version) // for objects that no feed has announced
	}
	e := event.Object{ObjectKind: id.Kind, Key: id.Key, Version: o.Version, Action: event.Applied}
	if o.Err != nil {
		var next time.Time
		if o.Waits {
			delete(l.retries, o.Key) // retries of thousands of waiting objects would cost too much
			l.waiting[o.Key] = struct{}{}
		} else {
			next = l.scheduleRetry(o.Key)
		}
		if w.Failed(id, o.Version, o.Err, next) {
			e.Action, e.Error = event.Failed, o.Err.Error()
			report.events, report.failed = append(report.events, e), append(report.failed, failedObject{e, next})
		}
		return
	}
	_, failed := l.retries[o.Key]
	if _, waited := l.waiting[o.Key]; failed || waited {
		delete(l.retries, o.Key)
		delete(l.waiting, o.Key)
		report.recovered = append(report.recovered, id.Key)
	}
	if o.Version != 0 {
		if w.Succeeded(id, o.Version) {
			report.events = append(report.events, e)
		}
	} else if w.Forget(id) {
		e.Action = event.Removed
		report.events = append(report.events, e)
	}
}

// scheduleRetry returns when an object that failed is tried next.
func (l *Loop[K]) scheduleRetry(k K) time.Time {
	delete(l.waiting, k)
	r := l.retries[k]
	if r == nil {
		b := backoff.NewExponentialBackOff()
		b.InitialInterval, b.MaxInterval = firstRetry, lastRetry
		b.Reset()
		r = &retry{backoff: b}
		l.retries[k] = r
	}
	r.due = time.Now().Add(r.backoff.NextBackOff())
	return r.due
}
