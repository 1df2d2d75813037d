package balancer

import (
	"cmp"
	"context"
	"hash/maphash"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"loxilb/kube/internal/translate"
)

// Options are the options of a Fleet.
type Options struct {
	Owner    string // owner of our services on balancers
	Zone     string
	TakeOver bool // delete services of the existing controller in this zone
	Roles    Roles
	BGP      BGP
	Changed  func(types.NamespacedName)         // the State of a Service may have changed
	Stuck    func(types.NamespacedName, string) // a balancer does not delete a service of the Service, for a reason
	Log      logr.Logger
}

// Fleet keeps all balancers up to date with the desired state of Services. It is safe for
// concurrent use.
type Fleet struct {
	Options
	seed      maphash.Seed
	listSlots chan struct{} // held while a balancer's services are read

	mu             sync.RWMutex
	desired        map[types.NamespacedName]*Desired
	held           map[types.NamespacedName]bool // Services that stay on balancers as they are
	complete       bool                          // Complete was called
	changes        uint64                        // number of changes of desired, held and complete
	balancersKnown bool                          // SetTargets was called
	members        map[string]*member
	masters        map[string]string // URLs of the elected balancers, by instance
	ctx            context.Context   // context of members' goroutines; nil: none may start
	running        sync.WaitGroup
}

// Desired has the entries of a Service that balancers should have.
type Desired struct {
	Common []translate.Entry
	Nodes  map[string][]translate.Entry // instead of Common, for balancers on these nodes
}

// Target is a balancer to keep up to date.
type Target struct {
	URL    string
	Node   string // the node of its pod; empty: outside of the cluster, or unknown
	Client *Client
}

// NewFleet returns a fleet without balancers.
func NewFleet(o Options) *Fleet {
	return &Fleet{
		Options: o, seed: maphash.MakeSeed(), listSlots: make(chan struct{}, maxLists), desired: map[types.NamespacedName]*Desired{},
		held: map[types.NamespacedName]bool{}, members: map[string]*member{}, masters: map[string]string{},
	}
}

// Start keeps balancers up to date until the context ends. It is a Runnable of controller-runtime
// that only the leader runs.
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
	f.mu.Lock()
	f.ctx = nil
	f.mu.Unlock()
	f.running.Wait()
	return nil
}

// run starts the goroutine of a member. f.mu is held.
func (f *Fleet) run(m *member) {
	if f.ctx == nil {
		return
	}
	ctx, cancel := context.WithCancel(f.ctx)
	m.cancel = cancel
	f.running.Go(func() { m.loop(ctx) })
}

// SetTargets replaces the balancers, and reports whether any was added or removed. Removed
// balancers keep their services: their data paths may outlive an interruption of the cluster.
func (f *Fleet) SetTargets(targets []Target) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.balancersKnown = true
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

// Addresses returns the URLs of the balancers by their addresses.
func (f *Fleet) Addresses() map[netip.Addr]string {
	out := map[netip.Addr]string{}
	for _, m := range f.list() {
		if at, err := netip.ParseAddrPort(m.Client.address); err == nil {
			out[at.Addr().Unmap()] = m.URL
		}
	}
	return out
}

// list returns the balancers, sorted by URL.
func (f *Fleet) list() []*member {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.SortedFunc(maps.Values(f.members), func(a, b *member) int { return strings.Compare(a.URL, b.URL) })
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

// hash sets the hashes of entries.
func (f *Fleet) hash(entries []translate.Entry) {
	for i := range entries {
		entries[i].Hash = maphash.Bytes(f.seed, entries[i].Spec)
	}
}

// Hold keeps the services of a Service on balancers as they are, until Set or Delete.
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
	_, exists := f.desired[service]
	exists = exists || f.held[service]
	delete(f.desired, service)
	delete(f.held, service)
	if exists {
		f.changes++
	}
	f.mu.Unlock()
	if exists {
		f.wake()
	}
}

// Complete must be called once Set or Hold was called for each Service. From then on, services of
// ours without a Service are deleted from balancers.
func (f *Fleet) Complete() {
	f.mu.Lock()
	f.complete = true
	f.changes++
	f.mu.Unlock()
	f.wake()
}

// wake makes all balancers synchronize soon.
func (f *Fleet) wake() {
	for _, m := range f.list() {
		m.wake()
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

// For returns the entries for the balancer of a node; node "" is a balancer outside of the cluster.
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
	changes  uint64 // Fleet.changes of this view
}

// hasChanged reports whether the desired state has changed since a view.
func (f *Fleet) hasChanged(since uint64) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.changes != since
}

// view returns the desired state of the balancer of a node.
func (f *Fleet) view(node string) view {
	f.mu.RLock()
	defer f.mu.RUnlock()
	v := view{items: make(map[string]item, len(f.desired)), held: make(map[types.NamespacedName]bool, len(f.held)), complete: f.complete, changes: f.changes}
	for service, d := range f.desired {
		for _, e := range d.For(node) {
			// Two Services may have the same key for a moment, when one has just released it. The
			// choice must be the same in each view.
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

// State is the state of a Service on balancers.
type State struct {
	BalancersKnown bool              // the list of balancers is known
	Balancers      int               // number of balancers
	Reachable      int               // number of reachable balancers
	Silent         bool              // no balancer has answered for longer than a restart may take
	Tried          bool              // each balancer has answered or failed
	Entries        int               // number of desired entries
	Endpoints      int               // number of endpoints of all entries
	Omitted        bool              // an entry lacks endpoints beyond the limit of balancers
	Programmed     bool              // each port of each address is on at least one balancer
	Have           map[string]bool   // keys of entries that a balancer has
	Errors         map[string]string // why a balancer has refused entries, by key
	Problem        string            // why a balancer applies no changes
}

// State returns the state of a Service on balancers.
func (f *Fleet) State(service types.NamespacedName) State {
	f.mu.RLock()
	d, balancersKnown := f.desired[service], f.balancersKnown
	f.mu.RUnlock()
	s := State{BalancersKnown: balancersKnown, Have: map[string]bool{}, Errors: map[string]string{}}
	if d == nil {
		d = &Desired{}
	}
	s.Tried, s.Silent = true, true
	for _, m := range f.list() {
		s.Balancers++
		s.Tried, s.Silent = s.Tried && m.isTried(), s.Silent && m.isSilent()
		entries := d.For(m.Node)
		s.Omitted = s.Omitted || slices.ContainsFunc(entries, func(e translate.Entry) bool { return e.Omitted })
		if m.addState(entries, s.Have, s.Errors) {
			s.Reachable++
			s.Problem = cmp.Or(s.Problem, m.busyReason())
		}
	}
	s.Entries, s.Programmed = len(d.Common), s.Balancers > 0
	for _, e := range d.Common {
		s.Endpoints += e.Endpoints
		s.Programmed = s.Programmed && s.Have[e.Key]
	}
	return s
}

// Gone reports whether no reachable balancer has services of a Service. Other balancers delete them
// when they return.
func (f *Fleet) Gone(service types.NamespacedName) bool {
	for _, m := range f.list() {
		if m.has(service) {
			return false
		}
	}
	return true
}

// Remaining returns the number of answering balancers that may have our services.
func (f *Fleet) Remaining() (n int) {
	f.mu.RLock()
	isKnown := f.complete && f.balancersKnown
	f.mu.RUnlock()
	if !isKnown {
		return 1
	}
	for _, m := range f.list() {
		if m.hasAny() {
			n++
		}
	}
	return n
}
