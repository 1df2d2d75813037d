package reconcile

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"loxilb/internal/control/compile"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb"
)

// PathFinder finds the paths to hosts, including this machine's source addresses.
type PathFinder interface {
	// Paths returns the path to each host, or why there is none.
	Paths(ctx context.Context, hosts []netip.Addr) (found map[netip.Addr]netdev.Path, missing map[netip.Addr]error, err error)
}

// sourceShare bounds the share of time for repeated lookups, however fast routes change: a
// twentieth.
const sourceShare = 20

// sources caches the paths to endpoints, and so this machine's addresses as endpoints see them. The
// services loop looks up new endpoints; a separate task looks all up again when routes change, so
// changes of services do not wait for it.
type sources struct {
	lookup PathFinder
	task   *Task
	wake   func() // wakes the services loop, which calls drainChanged

	mu      sync.Mutex
	routes  uint64                     // number of changes of routes
	known   map[netip.Addr]netdev.Path // by endpoint; zero: none
	changed map[netip.Addr]bool        // endpoints with another path since drainChanged
}

func newSources(lookup PathFinder, o Observers, wake func()) *sources {
	s := &sources{lookup: lookup, wake: wake, known: map[netip.Addr]netdev.Path{}, changed: map[netip.Addr]bool{}}
	s.task = NewTask("source addresses", sourceShare, s.refresh, o)
	return s
}

// pathDependent returns the endpoints of a service whose connections depend on the path to them.
func pathDependent(s *lb.Service) (hosts []netip.Addr) {
	for _, e := range s.Endpoints {
		if compile.NeedsPath(*s, e) {
			hosts = append(hosts, e.Addr)
		}
	}
	return hosts
}

// get returns the path to an endpoint; zero if there is none.
func (s *sources) get(endpoint netip.Addr) compile.Path {
	s.mu.Lock()
	defer s.mu.Unlock()
	return compile.Path(s.known[endpoint])
}

// routesChanged schedules all paths to be looked up again.
func (s *sources) routesChanged() {
	s.mu.Lock()
	s.routes++
	s.mu.Unlock()
	s.task.Mark()
}

// forget drops endpoints that no service uses.
func (s *sources) forget(hosts []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range hosts {
		delete(s.known, a)
		delete(s.changed, a)
	}
}

// find looks up the paths that are not known yet.
func (s *sources) find(ctx context.Context, hosts []netip.Addr) error {
	s.mu.Lock()
	routes := s.routes
	need := slices.DeleteFunc(unique(hosts), func(a netip.Addr) bool { return s.known[a].Source.IsValid() })
	s.mu.Unlock()
	if len(need) == 0 {
		return nil
	}
	found, _, err := s.lookup.Paths(ctx, need)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range need {
		s.set(a, found[a])
	}
	if s.routes != routes {
		s.task.Mark() // this lookup may precede the change, and the task may have run without these hosts
	}
	return nil
}

// set records the path to an endpoint. The caller holds mu.
func (s *sources) set(host netip.Addr, path netdev.Path) {
	if old, had := s.known[host]; had && old != path {
		s.changed[host] = true // other services may have the endpoint, too
	}
	s.known[host] = path
}

// refresh looks up all paths again. Existing connections keep their source address.
func (s *sources) refresh(ctx context.Context) error {
	s.mu.Lock()
	hosts := slices.Collect(maps.Keys(s.known))
	s.mu.Unlock()
	if len(hosts) == 0 {
		return nil
	}
	found, _, err := s.lookup.Paths(ctx, hosts)
	if err != nil {
		return fmt.Errorf("look source addresses up again: %w", err)
	}
	s.mu.Lock()
	for _, a := range hosts {
		if _, exists := s.known[a]; exists {
			s.set(a, found[a])
		}
	}
	moved := len(s.changed) > 0
	s.mu.Unlock()
	if moved {
		s.wake()
	}
	return nil
}

// drainChanged returns the endpoints whose path changed since the last call.
func (s *sources) drainChanged() map[netip.Addr]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.changed) == 0 {
		return nil
	}
	moved := s.changed
	s.changed = map[netip.Addr]bool{}
	return moved
}
