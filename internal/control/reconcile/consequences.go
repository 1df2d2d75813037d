package reconcile

import (
	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/event"
	"loxilb/internal/lb"
)

// consequences are the services that change because of objects of other kinds: drains take the weight of endpoints, roles of instances
// give sources. Such an object counts as applied once all of these services have been tried: who asked for it, and was answered, finds
// it in the data path. If a service fails, its own status says so.
// The goroutine of the loop alone touches it.
type consequences struct {
	services map[lb.Key]struct{}   // that have not been tried since
	objects  map[store.ID]struct{} // that wait for them
	noted    map[store.ID]struct{} // that have a status
	snapshot *store.Snapshot       // that objects are of
}

func newConsequences() consequences {
	return consequences{services: map[lb.Key]struct{}{}, objects: map[store.ID]struct{}{}, noted: map[store.ID]struct{}{}}
}

// feed takes the objects that changed. all: it is not known which did.
func (c *consequences) feed(w *status.Writer, d *desired.State, snapshot *store.Snapshot, changed []store.ID, all bool) {
	c.snapshot = snapshot
	if all {
		for drain := range d.Drains.All(snapshot) {
			c.want(w, d.Drains.ID(drain.Key()))
		}
		for one := range d.Instances.All(snapshot) {
			c.want(w, d.Instances.ID(one.Key()))
		}
		for id := range c.noted { // also of those that are gone
			c.want(w, id)
		}
	}
	for _, id := range changed {
		if id.Kind == desired.DrainKind || id.Kind == desired.InstanceKind {
			c.want(w, id)
		}
	}
	w.Seen(desired.DrainKind, snapshot.Revision())
	w.Seen(desired.InstanceKind, snapshot.Revision())
}

func (c *consequences) want(w *status.Writer, id store.ID) {
	meta, _ := c.snapshot.Meta(id)
	w.Want(status.ID(id), meta.Version) // version 0: it is gone
	c.objects[id], c.noted[id] = struct{}{}, struct{}{}
}

// follow has objects wait for these services.
func (c *consequences) follow(keys ...lb.Key) {
	for _, key := range keys {
		c.services[key] = struct{}{}
	}
}

// tried notes that a pass took these services.
func (c *consequences) tried(keys []lb.Key) {
	for _, key := range keys {
		delete(c.services, key)
	}
}

// settle notes that objects are applied, if no service is left that they wait for.
func (c *consequences) settle(o Observers) {
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
				delete(c.noted, id)
			}
			if news {
				events = append(events, e)
			}
		}
	})
	clear(c.objects)
	o.Events.Publish(events...)
}
