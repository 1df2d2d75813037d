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

// settle reports objects as applied once they wait for no service.
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
