package speaker

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	gobgp "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"loxilb/internal/host/monotime"
)

const (
	// settleTime is how long all sessions must be established, without a change of a route, before
	// routes of an earlier process that no neighbor has announced again are removed; staleTime
	// limits how long they stay.
	settleTime = 5 * time.Second
	staleTime  = 2 * time.Minute
	// loggedFailures is how many failing routes are logged: all may fail at once.
	loggedFailures = 20
)

// learnedRoutes adds routes that neighbors announce to the kernel's main table.
type learnedRoutes struct {
	log *slog.Logger

	mu      sync.Mutex
	kernel  *kernelRoutes
	enabled bool
	closed  bool
	best    map[netip.Prefix]nextHop // of neighbors, whether enabled or not
	failed  map[netip.Prefix]bool    // the kernel does not have them
	stale   map[netip.Prefix]bool    // of an earlier process, and not announced again yet
	changed time.Time                // when neighbors last changed a route
}

// nextHop is where a learned route leads.
type nextHop struct {
	addr netip.Addr
	link string // of a link-local address
}

func newLearned(log *slog.Logger) (*learnedRoutes, error) {
	k, err := openKernel()
	if err != nil {
		return nil, fmt.Errorf("open the kernel's routes: %w", err)
	}
	return &learnedRoutes{
		log: log, kernel: k, best: map[netip.Prefix]nextHop{}, failed: map[netip.Prefix]bool{}, stale: map[netip.Prefix]bool{},
	}, nil
}

// adopt keeps the routes of an earlier process until neighbors announce them again, or dropStale.
// If they are not wanted, it removes them.
func (l *learnedRoutes) adopt(wanted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	routes, err := l.kernel.read()
	if err != nil {
		l.log.Warn("routes that an earlier process learned cannot be read", "error", err)
	}
	for _, prefix := range routes {
		l.stale[prefix] = true
	}
	if !wanted {
		l.removeStale()
	}
}

// dropStale removes the routes of an earlier process that no neighbor has announced again.
func (l *learnedRoutes) dropStale() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.removeStale()
	}
}

func (l *learnedRoutes) removeStale() {
	if len(l.stale) > 0 {
		l.log.Info("routes that an earlier process learned are removed", "routes", len(l.stale))
	}
	edits := make([]routeEdit, 0, len(l.stale))
	for prefix := range l.stale {
		edits = append(edits, routeEdit{prefix: prefix, remove: true})
	}
	l.write(edits)
	clear(l.stale)
}

func (l *learnedRoutes) hasStale() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.stale) > 0
}

// isQuiet reports whether no neighbor has changed a route for settleTime.
func (l *learnedRoutes) isQuiet() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.changed) >= settleTime
}

// update adds and removes the routes whose best path has changed.
func (l *learnedRoutes) update(paths []*apiutil.Path) {
	for part := range slices.Chunk(paths, writeSlice) {
		l.updatePart(part)
	}
}

func (l *learnedRoutes) updatePart(paths []*apiutil.Path) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.changed = time.Now()
	var edits []routeEdit
	for _, p := range paths {
		prefix, hop, ok := learnedRoute(p)
		_, is := l.best[prefix]
		switch {
		case !prefix.IsValid():
		case ok:
			l.best[prefix] = hop
			delete(l.stale, prefix)
			edits = append(edits, routeEdit{prefix: prefix, hop: hop})
		case is:
			delete(l.best, prefix)
			edits = append(edits, routeEdit{prefix: prefix, remove: true})
		}
	}
	if l.enabled {
		l.write(edits)
	}
}

// write changes the kernel's routes, and returns how many changes succeeded. The caller holds the
// lock.
func (l *learnedRoutes) write(edits []routeEdit) (succeeded int) {
	l.kernel.write(edits, func(i int, err error) {
		l.report(edits[i].prefix, err)
		if err == nil {
			succeeded++
		}
	})
	return succeeded
}

// learnedRoute returns where a path leads; !ok: it is this node's own, or withdrawn.
func learnedRoute(p *apiutil.Path) (prefix netip.Prefix, hop nextHop, ok bool) {
	nlri, is := p.Nlri.(*gobgp.IPAddrPrefix)
	if !is {
		return prefix, hop, false
	}
	prefix = nlri.Prefix
	for _, a := range p.Attrs {
		switch a := a.(type) {
		case *gobgp.PathAttributeNextHop:
			hop.addr = a.Value
		case *gobgp.PathAttributeMpReachNLRI:
			hop.addr = a.Nexthop
			if hop.addr.IsUnspecified() && a.LinkLocalNexthop.IsValid() {
				hop.addr = a.LinkLocalNexthop
			}
		}
	}
	if hop.addr.IsLinkLocalUnicast() {
		hop.link = p.PeerAddress.Zone()
	}
	return prefix, hop, !p.Withdrawal && p.PeerAddress.IsValid() && hop.addr.IsValid()
}

// report logs a route that the kernel does not take, once.
func (l *learnedRoutes) report(prefix netip.Prefix, err error) {
	if err != nil && !l.failed[prefix] && len(l.failed) < loggedFailures {
		l.log.Warn("route of a BGP neighbor cannot be added to the kernel or removed", "prefix", prefix, "error", err)
	}
	if err != nil {
		l.failed[prefix] = true
	} else {
		delete(l.failed, prefix)
	}
}

// enable adds the learned routes to the kernel, or removes them.
func (l *learnedRoutes) enable(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if on == l.enabled {
		return
	}
	l.enabled = on
	edits := make([]routeEdit, 0, len(l.best))
	for prefix, hop := range l.best {
		edits = append(edits, routeEdit{prefix: prefix, hop: hop, remove: !on})
	}
	l.write(edits)
	if !on {
		l.removeStale()
	}
}

// repair adds the routes that the kernel lacks. It returns false if the kernel's are unknown.
func (l *learnedRoutes) repair() bool {
	prefixes, err := l.lacking()
	if err != nil {
		l.log.Warn("routes of BGP neighbors cannot be compared with the kernel", "error", err)
		return false
	}
	added := 0
	for part := range slices.Chunk(prefixes, writeSlice) {
		added += l.addAgain(part)
	}
	if added > 0 {
		l.log.Info("routes of BGP neighbors were added to the kernel again", "routes", added)
	}
	return true
}

// lacking returns the routes that the kernel lacks.
func (l *learnedRoutes) lacking() (prefixes []netip.Prefix, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.enabled || l.closed || len(l.best) == 0 {
		return nil, nil
	}
	routes, err := l.kernel.read()
	if err != nil {
		return nil, err
	}
	have := make(map[netip.Prefix]bool, len(routes))
	for _, prefix := range routes {
		have[prefix] = true
	}
	for prefix := range l.best {
		if !have[prefix] {
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes, nil
}

// addAgain adds routes that are still wanted, and returns their number.
func (l *learnedRoutes) addAgain(prefixes []netip.Prefix) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.enabled || l.closed {
		return 0
	}
	edits := make([]routeEdit, 0, len(prefixes))
	for _, prefix := range prefixes {
		if hop, is := l.best[prefix]; is {
			edits = append(edits, routeEdit{prefix: prefix, hop: hop})
		}
	}
	return l.write(edits)
}

// close ends all changes. The kernel keeps the routes while the daemon restarts.
func (l *learnedRoutes) close(keep bool) {
	if !keep {
		l.enable(false)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.kernel.close()
	}
	l.closed = true
}

// dropStaleRoutes removes the routes of an earlier process once neighbors had the time to announce
// them again.
func (e *engine) dropStaleRoutes(ctx context.Context) {
	for deadline := time.Now().Add(staleTime); e.learned.hasStale() && time.Now().Before(deadline) && !e.settled(); {
		if !monotime.Sleep(ctx, retryTime) {
			return
		}
	}
	if ctx.Err() == nil {
		e.learned.dropStale()
	}
}

// settled reports whether the sessions of all neighbors have been established for settleTime, and
// routes have not changed meanwhile.
func (e *engine) settled() bool {
	if !e.learned.isQuiet() {
		return false
	}
	e.owner.mu.Lock()
	defer e.owner.mu.Unlock()
	for k := range e.owner.wanted.neighbors {
		if p := e.peers[k]; p == nil || !p.status.established || time.Since(p.status.since) < settleTime {
			return false
		}
	}
	return true
}
