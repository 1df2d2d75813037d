package reconcile

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"loxilb/internal/announce"
	"loxilb/internal/control/compile"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

// Tables is the data path.
type Tables interface {
	// Apply returns an error for each failed change, and nil for each successful one.
	Apply([]datapath.Change) []error
	// Reserve makes room for these numbers of services and endpoints at once.
	Reserve(services, endpoints int)
	// SetDrains sets the drained endpoints, before Apply stops new connections to them.
	SetDrains([]lb.Drain)
	Services() []bpf.TcServiceKey
	// CurrentWeights returns the weights for new connections of a service's endpoints, or nil
	// without such a service.
	CurrentWeights(bpf.TcServiceKey) map[netip.AddrPort]uint32
}

// Services applies the stored services: it compiles them, writes their tables, and acquires their
// VIPs.
type Services struct {
	*Loop[lb.Key]
	ServicesConfig

	seen        uint64      // revision up to which changes are marked
	started     bool        // the first round has begun
	endedDue    bool        // the last pass wrote something, and Ended was not called yet
	orphansDue  time.Time   // when to remove unwanted services of an earlier process; zero: there are none
	initialized atomic.Bool // the first round is over, so VIPs of an earlier process may be removed
	adopted     adopted
	index       *index
	vips        *vips
	sources     *sources
	unreachable unreachable
	slowStart   *slowStart
	reapply     reapplyTimers
	roles       roles

	dependents dependents
	afterPass  func(...lb.Key) // nil: not needed
}

// FollowPasses sets the function that is called with the services of each pass, once the data path
// has them. It must be called before Run.
func (s *Services) FollowPasses(f func(...lb.Key)) { s.afterPass = f }

// ServicesConfig has the dependencies of Services. All members are needed.
type ServicesConfig struct {
	Observers
	Desired   *desired.State
	Tables    Tables
	VIPs      announce.Owner
	Leases    *LeasePart // of VIPs
	Sources   PathFinder
	Endpoints Endpoints
	Health    *Health
	Ended     func()            // called after a pass that may end connections
	Role      func(lb.Instance) // called when this node's role for an instance is known or has changed
	Seed      uint64            // key of the hash tables
}

// NewServices returns the loop of the services.
func NewServices(c ServicesConfig) *Services {
	s := &Services{ServicesConfig: c, index: newIndex(newNotifier(c.Endpoints), c.Health.probes), dependents: newDependents()}
	s.Loop = newLoop(kinds.ServiceName, lb.Key.String, s, c.Observers)
	s.Loop.watch, s.Loop.feed = c.Desired.Changed, s.feed
	s.slowStart = newSlowStart(c.Log, s.Mark)
	s.reapply = reapplyTimers{timers: map[lb.Key]*time.Timer{}, mark: s.Mark}
	s.vips = newVIPs(LeasedOwner{c.VIPs, c.Leases}, s.leaseInstances, c.Observers, s.Wake)
	s.sources = newSources(c.Sources, c.Observers, s.Wake)
	c.Statuses.Include(s.unreachable.statuses)
	c.Health.probes.policies.source = func(endpoint netip.Addr) netip.Addr { return s.sources.get(endpoint).Source }
	c.Health.setMark(func(keys ...lb.Key) { s.Mark(keys...) })
	return s
}

// Run applies until ctx ends.
func (s *Services) Run(ctx context.Context) {
	var helpers sync.WaitGroup
	defer helpers.Wait()
	helpers.Go(func() { s.sources.task.Run(ctx) })
	helpers.Go(func() {
		select {
		case <-ctx.Done():
		case <-s.Idle(): // until then, VIPs and neighbours of an earlier process are kept
			s.initialized.Store(true)
			s.Wake()
			s.index.notifier.run(ctx)
		}
	})
	s.Loop.Run(ctx)
}

// RoutesChanged reports that routes or addresses have changed, and so perhaps the source addresses
// that endpoints see.
func (s *Services) RoutesChanged() { s.sources.routesChanged() }

// Started reports whether the first round is over, and until then how many of all services are
// applied.
func (s *Services) Started() (done bool, applied, total int) {
	select {
	case <-s.Idle():
		return true, 0, 0
	default:
	}
	counts := s.Statuses.Counts()[kinds.ServiceName]
	return false, counts[status.Applied], s.Desired.Services.Len(s.Desired.Snapshot())
}

// feed marks services that changed in the store since the last time, and services with a new path
// to an endpoint.
func (s *Services) feed(ctx context.Context) {
	if s.endedDue { // not in Apply: requests are answered first, by the pass's report
		s.endedDue = false
		s.Ended()
	}
	snapshot, changed, ok := s.Desired.Since(s.seen)
	all := !ok || !s.started
	if all || len(changed) > 0 {
		if !s.started {
			s.adopted = newAdopted(s.Tables.Services())
		}
		s.started, s.seen = true, snapshot.Revision()
		s.Tables.Reserve(s.Desired.Services.Len(snapshot), s.Desired.Services.Endpoints(snapshot))
		s.publishDrains(snapshot, changed, all)
		s.Statuses.Update(func(w *status.Writer) {
			if all {
				s.feedAll(w, snapshot)
			} else {
				s.feedChanges(w, snapshot, changed)
			}
			w.Seen(kinds.ServiceName, s.seen)
			s.dependents.feed(w, s.Desired, snapshot, changed, all)
		})
		s.feedRoles(ctx, snapshot)
	}
	s.dependents.settle(s.Observers)
	s.Mark(s.index.withPathTo(s.sources.drainChanged())...)
	s.removeOrphans(snapshot)
	if s.initialized.CompareAndSwap(true, false) {
		s.releaseOtherVIPs(ctx, snapshot)
	}
	s.vips.retry(ctx, s.owned)
}

func (s *Services) feedChanges(w *status.Writer, snapshot *store.Snapshot, changed []store.ID) {
	keys := make([]lb.Key, 0, len(changed))
	drained := map[netip.Addr]bool{}
	for _, id := range changed {
		if a, ok := desired.DrainedAddr(id); ok {
			drained[a] = true
		}
		if key, ok := desired.ServiceKey(id); ok {
			s.want(w, snapshot, key)
			keys = append(keys, key)
		}
	}
	// Deletions first: they make room in the data path, and remove overlapping port ranges.
	slices.SortStableFunc(keys, func(a, b lb.Key) int { return s.rank(snapshot, a) - s.rank(snapshot, b) })
	s.MarkFirst(keys...)
	weighed := s.index.withEndpoints(drained)
	s.MarkFirst(weighed...)
	s.dependents.await(weighed...)
	s.Mark(s.index.dependents(snapshot, s.Desired.Services, keys)...)
}

// rank orders keys: deleted services come first.
func (s *Services) rank(snapshot *store.Snapshot, key lb.Key) int {
	if service, _ := s.Desired.Services.Shared(snapshot, key); service != nil {
		return 1
	}
	return 0
}

// feedAll marks everything, including services that only the data path has: at the start, and when
// the store no longer knows the changes.
func (s *Services) feedAll(w *status.Writer, snapshot *store.Snapshot) {
	s.orphansDue = time.Now()
	for _, key := range s.index.keys() {
		if service, _ := s.Desired.Services.Shared(snapshot, key); service == nil {
			s.want(w, snapshot, key)
			s.Mark(key)
			s.dependents.await(key)
		}
	}
	for service := range s.Desired.Services.All(snapshot) {
		s.want(w, snapshot, service.Key)
		s.Mark(service.Key)
		s.dependents.await(service.Key)
	}
}

func (s *Services) want(w *status.Writer, snapshot *store.Snapshot, key lb.Key) {
	_, version := s.Desired.Services.Shared(snapshot, key)
	w.Want(status.ID(desired.ServiceID(key)), version)
}

// releaseOtherVIPs releases the VIPs that an earlier process owned and no service has. VIPs of a
// service that could not be applied stay: its version from the earlier process continues to work.
func (s *Services) releaseOtherVIPs(ctx context.Context, snapshot *store.Snapshot) {
	rows := map[bpf.TcServiceKey]bool{}
	for _, row := range s.Tables.Services() {
		rows[row] = true
	}
	for service := range s.Desired.Services.All(snapshot) {
		if s.index.get(service.Key) == nil && rows[compile.Key(service.Key)] {
			s.index.keep(&service)
		}
	}
	s.vips.setAll(ctx, s.allOwned())
}

// item is a service in a pass.
type item struct {
	Outcome[lb.Key]
	before   indexed     // in the data path
	service  *lb.Service // desired; nil: deleted
	resolved lb.Service  // in the data path's form: endpoints that are services are replaced by their endpoints
	parents  []uint32    // for each resolved endpoint, the index of the endpoint of service; nil: no endpoint is a service
	reason   error       // why the data path gets less than desired
}

// Apply writes the services of these keys to the data path, as they are in the store now.
func (s *Services) Apply(ctx context.Context, keys []lb.Key) []Outcome[lb.Key] {
	slices.SortFunc(keys, lb.Key.Compare)
	items := s.read(keys)
	s.findSources(ctx, items)
	touched, wrote := s.write(ctx, items)
	s.Health.probes.applyRequests() // services that could not be written keep their former probes
	s.ownVIPs(ctx, items, touched)
	s.endedDue = s.endedDue || wrote
	s.dependents.applied(keys)
	if s.afterPass != nil {
		s.afterPass(keys...)
	}
	out := make([]Outcome[lb.Key], len(items))
	for n := range items {
		if items[n].Err == nil {
			items[n].Err = items[n].reason
		}
		out[n] = items[n].Outcome
	}
	return out
}

// read reads the services from the store, and resolves them.
func (s *Services) read(keys []lb.Key) []item {
	snapshot := s.Desired.Snapshot()
	resolver := compile.NewResolver(s.Desired.Services.At(snapshot))
	items := make([]item, len(keys))
	for n, key := range keys {
		i := &items[n]
		i.Key = key
		if i.service, i.Version = s.Desired.Services.Shared(snapshot, key); i.service != nil {
			i.resolved, i.parents, i.reason = resolver.Resolve(*i.service)
			i.resolved = s.roles.sourced(s.Desired.Drains.Apply(snapshot, i.resolved))
		}
	}
	return items
}

// findSources looks up unknown paths to endpoints. If that fails, services that need a path are not
// applied.
func (s *Services) findSources(ctx context.Context, items []item) {
	var need []netip.Addr
	for n := range items {
		need = append(need, pathDependent(&items[n].resolved)...)
	}
	err := s.sources.find(ctx, need)
	if err == nil {
		return
	}
	for n := range items {
		if len(pathDependent(&items[n].resolved)) > 0 {
			items[n].Err = fmt.Errorf("find the paths to its endpoints: %w", err)
		}
	}
}

// write writes the tables: deletions first, to make room. It returns the VIPs before and after, and
// whether something was written.
func (s *Services) write(ctx context.Context, items []item) (touched []netip.Addr, wrote bool) {
	var deletions, puts []*item
	for n := range items {
		i := &items[n]
		if i.Err != nil {
			continue
		}
		if i.before = s.index.remove(i.Key); i.before.service != nil {
			touched = append(touched, i.before.service.OwnAddresses()...)
		}
		wrote = true
		if i.service == nil {
			deletions = append(deletions, i)
			continue
		}
		touched = append(touched, i.service.OwnAddresses()...)
		s.index.add(i.indexed())
		puts = append(puts, i)
	}
	s.Health.probes.applyRequests() // writeTables uses the states of the new probes
	s.adopted.await(ctx, s.Health.probes, puts)
	// A port range with a new end reuses the row of the range that it replaces, unless that
	// fails.
	replaced := func(i *item) bool { return s.index.hasRow(compile.Key(i.Key)) }
	var deferred []*item
	deletions = slices.DeleteFunc(deletions, func(i *item) bool {
		if replaced(i) {
			deferred = append(deferred, i)
		}
		return replaced(i)
	})
	touched = append(touched, s.writeTables(append(deletions, puts...))...)
	touched = append(touched, s.writeTables(slices.DeleteFunc(deferred, replaced))...)
	s.forgetSources(items)
	return touched, wrote
}

// forgetSources removes the paths to endpoints that no service uses.
func (s *Services) forgetSources(items []item) {
	var unused []netip.Addr
	for n := range items {
		if before := &items[n].before; before.service != nil {
			unused = append(unused, slices.DeleteFunc(pathDependent(before.effective()), s.index.hasEndpoint)...)
		}
	}
	if len(unused) > 0 {
		s.sources.forget(unused)
	}
}

// writeTables writes the tables of services, or deletes them. A failed service keeps its former
// entry in the index. It returns the addresses that were kept for services that are applied now.
func (s *Services) writeTables(items []*item) (released []netip.Addr) {
	if len(items) == 0 {
		return nil
	}
	changes := make([]datapath.Change, len(items))
	for n, i := range items {
		changes[n].Key = compile.Key(i.Key)
		if i.service != nil {
			table := s.tableOf(&i.resolved)
			table.Parents = i.parents
			changes[n].Table = &table
		} else {
			s.slowStart.forget(i.Key)
			s.reapply.schedule(i.Key, 0)
		}
	}
	for n, err := range s.Tables.Apply(changes) {
		i := items[n]
		if err == nil {
			released = append(released, s.index.release(i.Key)...)
			s.unreachable.record(i.Key, i.effective(), s.sources.get)
			continue
		}
		s.index.remove(i.Key)
		if i.before.service != nil {
			s.index.add(i.before)
		}
		if errors.Is(err, datapath.ErrFull) {
			err = temporaryError{err} // rows of removed services become free soon
		}
		i.Err = err
	}
	return released
}

// tableOf returns the current table of a service.
func (s *Services) tableOf(service *lb.Service) bpf.ServiceTable {
	before := func() map[netip.AddrPort]uint32 { return s.Tables.CurrentWeights(compile.Key(service.Key)) }
	weights := s.slowStart.weights(service, s.Health.probes.up(service), before)
	table := compile.Weighted(*service, weights, s.Seed, s.sources.get)
	s.setDeadlines(service, &table)
	return table
}

// effective returns the service in the data path's form; nil: deleted.
func (i *item) effective() *lb.Service {
	if i.service == nil {
		return nil
	}
	return &i.resolved
}

// indexed returns the service's entry in the index once it is applied.
func (i *item) indexed() indexed {
	if i.parents == nil {
		return indexed{service: i.service}
	}
	return indexed{service: i.service, resolved: new(i.resolved)}
}

// ownVIPs acquires or releases VIPs. It acquires a VIP after its first service is applied, and
// releases it after its last service is removed.
func (s *Services) ownVIPs(ctx context.Context, items []item, touched []netip.Addr) {
	failed := s.vips.apply(ctx, touched, s.owned)
	if len(failed) == 0 {
		return
	}
	for n := range items {
		i := &items[n]
		if i.Err != nil || i.service == nil {
			continue
		}
		for _, a := range i.service.OwnAddresses() {
			if err := failed[a]; err != nil {
				i.Err = fmt.Errorf("acquire VIP %s: %w", a, err)
			}
		}
	}
}

// temporaryError is an error that is expected to pass, so a request waits a little longer.
type temporaryError struct{ error }

func (temporaryError) Temporary() bool { return true }

func (p temporaryError) Unwrap() error { return p.error }

// removeOrphans removes services of an earlier process that the store does not have from the data
// path.
func (s *Services) removeOrphans(snapshot *store.Snapshot) {
	if s.orphansDue.IsZero() || time.Now().Before(s.orphansDue) {
		return
	}
	wanted := make(map[bpf.TcServiceKey]bool)
	for service := range s.Desired.Services.All(snapshot) {
		wanted[compile.Key(service.Key)] = true
	}
	for _, key := range s.index.keys() {
		wanted[compile.Key(key)] = true // the loop removes it
	}
	var deletions []datapath.Change
	for _, key := range s.Tables.Services() {
		if !wanted[key] {
			deletions = append(deletions, datapath.Change{Key: key})
		}
	}
	id := status.ID{Kind: TaskKind, Key: "services of an earlier start"}
	err := errors.Join(s.Tables.Apply(deletions)...)
	if len(deletions) > 0 {
		s.Ended()
	}
	if err == nil {
		s.orphansDue = time.Time{}
		s.Statuses.Forget(id)
		return
	}
	s.orphansDue = time.Now().Add(leftoverRetry)
	time.AfterFunc(leftoverRetry, s.Wake)
	if s.Statuses.Failed(id, 1, err, s.orphansDue) {
		s.Log.Error("services of an earlier start are still in the data path; trying again", "error", err)
	}
}
