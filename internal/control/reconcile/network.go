package reconcile

import (
	"context"
	"errors"
	"net/netip"
	"sync"

	"loxilb/internal/event"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/netdev"
)

// networkShare bounds the share of time for following addresses and routes, however fast they
// change: a twentieth.
const networkShare = 20

// NetworkPath is the data path's view of the network except for interfaces. All methods are
// idempotent.
type NetworkPath interface {
	ShareNextHops(shared bool) error
	BumpNextHops() error
	BumpNeighbours() error
	SetLocalAddresses([]netip.Addr) error
	SetDefaultRoutes([]datapath.DefaultRoute) error
}

// NetworkView is the kernel's network: a *netdev.Net.
type NetworkView interface {
	RoutesByDestination() bool // whether all packets to an address take the same route
	Addresses() []netip.Addr
	DefaultRoutes() (list []netdev.Hop, known bool)
}

// Network keeps the data path's view of the network up to date: each part is a task, which is
// retried after a failure.
type Network struct {
	events     *event.Hub
	nextHops   *Task
	neighbours *Task
	local      *Task
	defaults   *Task
	others     func(event.Body) // further parts that follow the network
}

// NewNetwork returns a Network. others is called for each event of the network.
func NewNetwork(p NetworkPath, v NetworkView, o Observers, others func(event.Body)) *Network {
	return &Network{
		events: o.Events, others: others,
		nextHops: NewTask("next hops", 0, func(context.Context) error {
			return errors.Join(p.ShareNextHops(v.RoutesByDestination()), p.BumpNextHops())
		}, o),
		neighbours: NewTask("neighbours", 0, func(context.Context) error { return p.BumpNeighbours() }, o),
		local: NewTask("local addresses", networkShare, func(context.Context) error {
			return p.SetLocalAddresses(v.Addresses())
		}, o),
		defaults: NewTask("default routes", networkShare, func(context.Context) error {
			list, known := v.DefaultRoutes()
			if !known {
				return nil // an event follows once they are known
			}
			routes := make([]datapath.DefaultRoute, len(list))
			for i, hop := range list {
				routes[i] = datapath.DefaultRoute{Gateway: hop.Via, Interface: hop.Link}
			}
			return p.SetDefaultRoutes(routes)
		}, o),
	}
}

// Idle returns channels that are closed once each part was tried.
func (n *Network) Idle() []<-chan struct{} {
	return []<-chan struct{}{n.nextHops.Idle(), n.neighbours.Idle(), n.local.Idle(), n.defaults.Idle()}
}

// Run follows the network until ctx ends. Everything is due at its start.
func (n *Network) Run(ctx context.Context) {
	changes := n.events.Subscribe(event.KindLink, event.KindAddress, event.KindRoute)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	n.invalidateAll() // before the tasks run: they would report Idle without work
	for _, t := range []*Task{n.nextHops, n.neighbours, n.local, n.defaults} {
		tasks.Go(func() { t.Run(ctx) })
	}
	for {
		e, lost, err := changes.Next(ctx)
		if err != nil {
			return
		}
		if lost > 0 {
			n.invalidateAll()
		}
		n.changed(e.Body)
	}
}

// invalidateAll schedules all tasks: at the start, and when events were lost.
func (n *Network) invalidateAll() {
	for _, b := range []event.Body{event.Link{}, event.Address{}, event.Routes{Defaults: true}, event.Routes{Neighbours: true}} {
		n.changed(b)
	}
}

// changed marks the tasks that depend on a part of the network. A neighbour with a new MAC address
// arrives as event.Routes.
func (n *Network) changed(b event.Body) {
	switch b := b.(type) {
	case event.Routes:
		if b.Neighbours {
			n.neighbours.Mark()
		} else {
			n.nextHops.Mark()
		}
		if b.Defaults {
			n.defaults.Mark()
		}
	case event.Address:
		n.local.Mark()
	}
	n.others(b)
}

// TaskKind is the kind of the statuses of tasks.
const TaskKind = "network"

// Task is a single piece of work that is retried and has a status like an object, such as updating
// the data path's view of default routes.
type Task struct {
	*Loop[string]
	key string
}

// NewTask returns a named task. f does all of the work and is idempotent. rest bounds its share of
// time when it is marked constantly: 20 means a twentieth, 0 no bound.
func NewTask(name string, rest int, f func(context.Context) error, o Observers) *Task {
	t := &Task{newLoop(TaskKind, func(k string) string { return k }, workerFunc(f), o), name}
	t.rest = rest
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
