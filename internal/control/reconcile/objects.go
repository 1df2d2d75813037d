package reconcile

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/health"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/event"
	"loxilb/internal/host/monotime"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

// objectLoop is the loop of a kind with few objects: it is fed with the changes of the store.
type objectLoop[T any] struct {
	*Loop[string]
	Observers
	desired *desired.State
	table   *store.Table[T]
	applied func() []string // applied objects, including deleted ones; nil: no applied object outlives its desired one
	seen    uint64          // revision up to which changes are marked
	started bool
}

func newObjectLoop[T any](w Worker[string], s *desired.State, table *store.Table[T], o Observers) *objectLoop[T] {
	l := &objectLoop[T]{Observers: o, desired: s, table: table}
	l.Loop = newLoop(table.Name(), func(key string) string { return key }, w, o)
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
		l.want(w, now, l.table.Key(object))
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
	w.Want(status.ID(l.table.ID(key)), meta.Version) // version 0: deleted
	l.MarkFirst(key)
}

// dependents tracks services that change because of objects of other kinds: drains change the
// weights of endpoints, instances the source addresses. Such an object counts as applied once all
// affected services have been tried, so the data path has it when its request is answered. A
// service that fails reports that in its own status. Only the loop's goroutine uses it.
type dependents struct {
	services map[lb.Key]struct{}   // not tried since
	objects  map[store.ID]struct{} // waiting for these services
	tracked  map[store.ID]struct{} // with a status
	snapshot *store.Snapshot       // of the objects
}

func newDependents() dependents {
	return dependents{services: map[lb.Key]struct{}{}, objects: map[store.ID]struct{}{}, tracked: map[store.ID]struct{}{}}
}

// feed adds the objects that changed. all means that the changes are unknown.
func (c *dependents) feed(w *status.Writer, d *desired.State, snapshot *store.Snapshot, changed []store.ID, all bool) {
	c.snapshot = snapshot
	if all {
		for drain := range d.Drains.All(snapshot) {
			c.want(w, d.Drains.ID(drain.Key()))
		}
		for one := range d.Instances.All(snapshot) {
			c.want(w, d.Instances.ID(one.Key()))
		}
		for id := range c.tracked { // deleted ones included
			c.want(w, id)
		}
	}
	for _, id := range changed {
		if id.Kind == kinds.DrainName || id.Kind == kinds.InstanceName {
			c.want(w, id)
		}
	}
	w.Seen(kinds.DrainName, snapshot.Revision())
	w.Seen(kinds.InstanceName, snapshot.Revision())
}

func (c *dependents) want(w *status.Writer, id store.ID) {
	meta, _ := c.snapshot.Meta(id)
	w.Want(status.ID(id), meta.Version) // version 0: deleted
	c.objects[id], c.tracked[id] = struct{}{}, struct{}{}
}

// await makes the objects wait for these services.
func (c *dependents) await(keys ...lb.Key) {
	for _, key := range keys {
		c.services[key] = struct{}{}
	}
}

// applied records that a pass tried these services, whether or not it succeeded.
func (c *dependents) applied(keys []lb.Key) {
	for _, key := range keys {
		delete(c.services, key)
	}
}

// settle reports objects as applied once no service is left that they wait for.
func (c *dependents) settle(o Observers) {
	if len(c.services) > 0 || len(c.objects) == 0 {
		return
	}
	var events []event.Body
	o.Statuses.Update(func(w *status.Writer) {
		for id := range c.objects {
			meta, there := c.snapshot.Meta(id)
			e := event.Object{ObjectKind: id.Kind, Key: id.Key, Version: meta.Version, Action: event.Applied}
			news := false
			if there {
				news = w.Succeeded(status.ID(id), meta.Version)
			} else {
				e.Action, news = event.Removed, w.Forget(status.ID(id))
				delete(c.tracked, id)
			}
			if news {
				events = append(events, e)
			}
		}
	})
	clear(c.objects)
	o.Events.Publish(events...)
}

const (
	// firstProbes bounds how long a start waits for first probes: a silent endpoint has timed out
	// by then.
	firstProbes = lb.DefaultProbeTimeout + time.Second
	probePoll   = 5 * time.Millisecond
)

// adopted are the services in the data path from an earlier process. They avoid the endpoints that
// were down then, until these have been probed again: a start sends no client to a dead endpoint.
type adopted struct {
	rows  map[bpf.TcServiceKey]bool
	until time.Time // end of the wait; zero: not begun
}

func newAdopted(rows []bpf.TcServiceKey) adopted {
	a := adopted{rows: make(map[bpf.TcServiceKey]bool, len(rows))}
	for _, row := range rows {
		a.rows[row] = true
	}
	return a
}

// await returns when the health of the adopted services' endpoints is known, or after firstProbes.
func (a *adopted) await(ctx context.Context, p *probes, items []*item) {
	if len(a.rows) == 0 {
		return
	}
	if a.until.IsZero() {
		a.until = time.Now().Add(firstProbes)
	}
	for _, i := range items {
		row := compile.Key(i.Key)
		for a.rows[row] && !p.known(&i.resolved) {
			if !time.Now().Before(a.until) {
				a.rows = nil
				return
			}
			if !monotime.Sleep(ctx, probePoll) {
				return
			}
		}
		delete(a.rows, row) // no longer adopted
	}
}

// known reports whether every endpoint whose health a service considers has a state.
func (p *probes) known(s *lb.Service) bool {
	return !s.Monitored() || !slices.ContainsFunc(s.Endpoints, func(e lb.Endpoint) bool {
		status, ok := p.prober.Status(p.keyOf(s, e))
		return ok && status.State == health.Unknown
	})
}

// Endpoints is notified of the services' endpoints, to keep the paths to them resolved.
type Endpoints interface {
	Update(changes map[netip.Addr]bool) // true: added; false: removed. The caller may reuse the map afterwards
}

// Endpoints is notified notifyAfter the first change, or later in a storm: the cost of an update
// grows with all endpoints, so it takes at most one part in notifyShare of the time, unless that
// delays it by more than longestRest.
const (
	notifyAfter = 100 * time.Millisecond
	notifyShare = 20
)

// notifier notifies Endpoints of added and removed endpoints. It has a goroutine of its own, so no
// change of a service waits for it.
type notifier struct {
	endpoints Endpoints
	notify    chan struct{} // capacity 1

	mu      sync.Mutex
	changes map[netip.Addr]bool // addresses added (true) or removed since
}

func newNotifier(e Endpoints) *notifier {
	return &notifier{endpoints: e, notify: make(chan struct{}, 1), changes: map[netip.Addr]bool{}}
}

// change records that an endpoint was added or removed.
func (n *notifier) change(a netip.Addr, added bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changes[a] = added
	n.signal()
}

func (n *notifier) signal() {
	select {
	case n.notify <- struct{}{}:
	default:
	}
}

// run notifies until ctx ends.
func (n *notifier) run(ctx context.Context) {
	wait := notifyAfter
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.notify:
		}
		if !monotime.Sleep(ctx, wait) {
			return
		}
		start := time.Now()
		n.endpoints.Update(n.take())
		wait = max(notifyAfter, min(longestRest, notifyShare*time.Since(start)))
	}
}

// take returns the changes since the last call.
func (n *notifier) take() map[netip.Addr]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	changes := n.changes
	n.changes = map[netip.Addr]bool{}
	return changes
}
