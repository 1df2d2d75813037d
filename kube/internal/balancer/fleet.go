package balancer

import (
	"cmp"
	"context"
	"hash/maphash"
	"net/netip"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"loxilb/kube/internal/translate"
)

// Options of a Fleet.
type Options struct {
	Owner    string // of our services on balancers
	Zone     string // zone of the existing controller, whose services TakeOver adopts
	TakeOver bool
	Roles    Roles
	BGP      BGP
	Changed  func(types.NamespacedName)         // the State of a Service may have changed
	Stuck    func(types.NamespacedName, string) // a balancer does not delete something of a Service, and why
	Log      logr.Logger
}

// Fleet has all balancers, and the desired state of Services on them. It is safe for concurrent
// use.
type Fleet struct {
	Options
	seed  maphash.Seed
	lists chan struct{} // balancers whose services are being read

	mu       sync.RWMutex
	desired  map[types.NamespacedName]*Desired
	held     map[types.NamespacedName]bool // Services that stay as they are on balancers
	complete bool                          // desired and held have all Services
	changes  uint64                        // of desired, held and complete
	targeted bool                          // members are all balancers
	members  map[string]*member
	masters  map[string]string // URLs of the elected balancers, by instance
	ctx      context.Context   // of members' goroutines; nil: not started
	running  sync.WaitGroup
}

// Desired is what balancers should have of a Service.
type Desired struct {
	Common []translate.Entry
	Nodes  map[string][]translate.Entry // instead of Common, of balancers on these nodes
}

// Target is a balancer to keep up to date.
type Target struct {
	URL    string
	Node   string // that it runs on; empty: outside of the cluster, or unknown
	Client *Client
}

// NewFleet returns a fleet without balancers.
func NewFleet(o Options) *Fleet {
	return &Fleet{
		Options: o, seed: maphash.MakeSeed(), lists: make(chan struct{}, listsAtOnce), desired: map[types.NamespacedName]*Desired{},
		held: map[types.NamespacedName]bool{}, members: map[string]*member{}, masters: map[string]string{},
	}
}

// Start serves the balancers until the context ends. It is a Runnable of controller-runtime that
// only the leader runs.
func (f *Fleet) Start(ctx context.Context) error {
	f.mu.Lock()
	f.ctx = ctx
	for _, m := range f.members {
		f.run(m)
	}
	f.mu.Unlock()
	if f.Roles.Enabled() {
		f.elect(ctx)
	}
	<-ctx.Done()
	f.running.Wait()
	return nil
}

// run starts the goroutine of a member. f.mu is held.
func (f *Fleet) run(m *member) {
	if f.ctx == nil || f.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(f.ctx)
	m.cancel = cancel
	f.running.Go(func() { m.loop(ctx) })
}

// SetTargets replaces the balancers, and reports whether some have come or gone. Balancers that are
// left out keep their services: their data path may well outlive an interruption of the cluster.
func (f *Fleet) SetTargets(targets []Target) (changed bool) {
	f.mu.Lock()
	f.targeted = true
	wanted := map[string]bool{}
	for _, t := range targets {
		wanted[t.URL] = true
		if old := f.members[t.URL]; old != nil && old.Node == t.Node {
			continue
		} else if old != nil {
			old.stop()
		}
		changed = true
		m := newMember(f, t)
		f.members[t.URL] = m
		f.run(m)
	}
	for url, m := range f.members {
		if !wanted[url] {
			m.stop()
			delete(f.members, url)
			changed = true
		}
	}
	f.mu.Unlock()
	return changed
}

// Nodes returns the nodes that have a balancer, sorted.
func (f *Fleet) Nodes() (nodes []string) {
	for _, m := range f.list() {
		if m.Node != "" {
			nodes = append(nodes, m.Node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// Addresses returns the addresses of the balancers, by address, with their URLs.
func (f *Fleet) Addresses() map[netip.Addr]string {
	out := map[netip.Addr]string{}
	for _, m := range f.list() {
		if at, err := netip.ParseAddrPort(m.Client.address); err == nil {
			out[at.Addr().Unmap()] = m.URL
		}
	}
	return out
}

func (f *Fleet) list() []*member {
	f.mu.RLock()
	defer f.mu.RUnlock()
	list := make([]*member, 0, len(f.members))
	for _, m := range f.members {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b *member) int {
		if a.URL < b.URL {
			return -1
		}
		return 1
	})
	return list
}

// Set sets the desired entries of a Service on balancers.
func (f *Fleet) Set(service types.NamespacedName, d Desired) {
	f.hash(d.Common)
	for _, entries := range d.Nodes {
		f.hash(entries)
	}
	f.mu.Lock()
	old := f.desired[service]
	same := old != nil && !f.held[service] && d.equal(old)
	f.desired[service] = &d
	delete(f.held, service)
	if !same {
		f.changes++
	}
	f.mu.Unlock()
	if !same {
		f.wake()
	}
}

func (f *Fleet) hash(entries []translate.Entry) {
	for i := range entries {
		entries[i].Hash = maphash.Bytes(f.seed, entries[i].Spec)
	}
}

// Hold keeps what balancers have of a Service, until Set or Delete.
func (f *Fleet) Hold(service types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.desired[service] == nil && !f.held[service] {
		f.held[service] = true
		f.changes++
	}
}

// Delete removes a Service from the balancers.
func (f *Fleet) Delete(service types.NamespacedName) {
	f.mu.Lock()
	_, there := f.desired[service]
	there = there || f.held[service]
	delete(f.desired, service)
	delete(f.held, service)
	if there {
		f.changes++
	}
	f.mu.Unlock()
	if there {
		f.wake()
	}
}

// Complete must be called once Set and Hold were called for all Services. Then our services without
// a Service are removed from balancers.
func (f *Fleet) Complete() {
	f.mu.Lock()
	f.complete = true
	f.changes++
	f.mu.Unlock()
	f.wake()
}

func (f *Fleet) wake() {
	for _, m := range f.list() {
		m.wakeUp()
	}
}

func (d *Desired) equal(other *Desired) bool {
	if !equalEntries(d.Common, other.Common) || len(d.Nodes) != len(other.Nodes) {
		return false
	}
	for node, entries := range d.Nodes {
		if o, ok := other.Nodes[node]; !ok || !equalEntries(entries, o) {
			return false
		}
	}
	return true
}

func equalEntries(a, b []translate.Entry) bool {
	return slices.EqualFunc(a, b, func(x, y translate.Entry) bool { return x.Key == y.Key && string(x.Spec) == string(y.Spec) })
}

// For returns the entries for the balancer of a node.
func (d *Desired) For(node string) []translate.Entry {
	if entries, ok := d.Nodes[node]; ok && node != "" {
		return entries
	}
	return d.Common
}

// item is one entry that a balancer should have.
type item struct {
	service types.NamespacedName
	spec    []byte
	hash    uint64
}

// view is the desired state of the balancer of a node.
type view struct {
	items    map[string]item
	held     map[types.NamespacedName]bool
	complete bool
	changes  uint64 // up to here
}

func (f *Fleet) hasChanged(since uint64) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.changes != since
}

func (f *Fleet) view(node string) view {
	f.mu.RLock()
	defer f.mu.RUnlock()
	v := view{items: make(map[string]item, len(f.desired)), held: make(map[types.NamespacedName]bool, len(f.held)), complete: f.complete, changes: f.changes}
	for service, d := range f.desired {
		for _, e := range d.For(node) {
			// Two Services may want the same for a moment, when one has just given it up: which one
			// gets it must not change from round to round.
			if other, twice := v.items[e.Key]; !twice || service.String() < other.service.String() {
				v.items[e.Key] = item{service, e.Spec, e.Hash}
			}
		}
	}
	for service := range f.held {
		v.held[service] = true
	}
	return v
}

// State is what balancers have of a Service.
type State struct {
	Targeted   bool // it is known which balancers there are
	Balancers  int  // in all
	Reachable  int
	Silent     bool              // none has answered for longer than a restart may take
	Tried      bool              // a request was sent to each balancer
	Entries    int               // that balancers should have
	Endpoints  int               // of all entries
	Omitted    bool              // an entry of a balancer lacks endpoints beyond its limit
	Programmed bool              // each port of each address is on at least one balancer
	Have       map[string]bool   // entries that a balancer has, by their keys
	Errors     map[string]string // why a balancer has refused entries, by their keys
	Problem    string            // of a balancer that takes no changes now
}

// State returns what balancers have of a Service.
func (f *Fleet) State(service types.NamespacedName) State {
	f.mu.RLock()
	d, targeted := f.desired[service], f.targeted
	f.mu.RUnlock()
	s := State{Targeted: targeted, Have: map[string]bool{}, Errors: map[string]string{}}
	if d == nil {
		d = &Desired{}
	}
	s.Tried, s.Silent = true, true
	for _, m := range f.list() {
		s.Balancers++
		s.Tried, s.Silent = s.Tried && m.wasTried(), s.Silent && m.wasSilent()
		entries := d.For(m.Node)
		s.Omitted = s.Omitted || slices.ContainsFunc(entries, func(e translate.Entry) bool { return e.Omitted })
		if m.report(entries, s.Have, s.Errors) {
			s.Reachable++
			s.Problem = cmp.Or(s.Problem, m.busyWith())
		}
	}
	s.Entries, s.Programmed = len(d.Common), s.Balancers > 0
	for _, e := range d.Common {
		s.Endpoints += e.Endpoints
		s.Programmed = s.Programmed && s.Have[e.Key]
	}
	return s
}

// Gone reports whether no balancer that can be reached has anything of a Service. Others forget it
// when they return.
func (f *Fleet) Gone(service types.NamespacedName) bool {
	for _, m := range f.list() {
		if m.has(service) {
			return false
		}
	}
	return true
}

// Left returns the number of answering balancers that may have our services.
func (f *Fleet) Left() (n int) {
	f.mu.RLock()
	known := f.complete && f.targeted
	f.mu.RUnlock()
	if !known {
		return 1
	}
	for _, m := range f.list() {
		if m.hasAny() {
			n++
		}
	}
	return n
}
