package reconcile

import (
	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/event"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

// dependents tracks services that change because of objects of other kinds: drains change the
// weights of endpoints, instances the source addresses. Such an object counts as applied once all
// affected services have been tried, so the data path has it when its request is answered. A
// service that fails reports that in its own status. Only the loop's goroutine uses it.
type dependents struct {
	services map[lb.Key]struct{}   // services that were not tried since
	objects  map[store.ID]struct{} // objects that wait for these services
	tracked  map[store.ID]struct{} // objects with a status
	snapshot *store.Snapshot       // has these objects
}

func newDependents() dependents {
	return dependents{services: map[lb.Key]struct{}{}, objects: map[store.ID]struct{}{}, tracked: map[store.ID]struct{}{}}
}

// feed adds the objects that changed. all means that the changes are unknown.
func (t *dependents) feed(w *status.Writer, d *desired.State, snapshot *store.Snapshot, changed []store.ID, all bool) {
	t.snapshot = snapshot
	if all {
		for drain := range d.Drains.All(snapshot) {
			t.want(w, d.Drains.ID(drain.Key()))
		}
		for one := range d.Instances.All(snapshot) {
			t.want(w, d.Instances.ID(one.Key()))
		}
		for id := range t.tracked { // including deleted ones
			t.want(w, id)
		}
	}
	for _, id := range changed {
		if id.Kind == kinds.DrainName || id.Kind == kinds.InstanceName {
			t.want(w, id)
		}
	}
	w.Seen(kinds.DrainName, snapshot.Revision())
	w.Seen(kinds.InstanceName, snapshot.Revision())
}

func (t *dependents) want(w *status.Writer, id store.ID) {
	meta, _ := t.snapshot.Meta(id)
	w.Want(status.ID(id), meta.Version) // version 0: deleted
	t.objects[id], t.tracked[id] = struct{}{}, struct{}{}
}

// await makes the objects wait for these services.
func (t *dependents) await(keys ...lb.Key) {
	for _, key := range keys {
		t.services[key] = struct{}{}
	}
}

// applied records that a pass tried these services, whether or not it succeeded.
func (t *dependents) applied(keys []lb.Key) {
	for _, key := range keys {
		delete(t.services, key)
	}
}

// settle reports objects as applied once they wait for no service.
func (t *dependents) settle(o Observers) {
	if len(t.services) > 0 || len(t.objects) == 0 {
		return
	}
	var events []event.Body
	o.Statuses.Update(func(w *status.Writer) {
		for id := range t.objects {
			meta, exists := t.snapshot.Meta(id)
			e := event.Object{ObjectKind: id.Kind, Key: id.Key, Version: meta.Version, Action: event.Applied}
			news := false
			if exists {
				news = w.Succeeded(status.ID(id), meta.Version)
			} else {
				e.Action, news = event.Removed, w.Forget(status.ID(id))
				delete(t.tracked, id)
			}
			if news {
				events = append(events, e)
			}
		}
	})
	clear(t.objects)
	o.Events.Publish(events...)
}
