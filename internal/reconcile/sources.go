package reconcile

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"loxilb/internal/compile"
	"loxilb/internal/lb"
)

// SourceAddresses finds this machine's addresses, as packets to hosts have them.
type SourceAddresses interface {
	// SourceAddresses returns the address for each host that has one, and why the others have none.
	SourceAddresses(ctx context.Context, hosts []netip.Addr) (found map[netip.Addr]netip.Addr, missing map[netip.Addr]error, err error)
}

// sourceShare bounds the part of the time that looking sources up again takes, however fast routes change.
const sourceShare = 20

// sources knows this machine's addresses as endpoints see them. The loop of the services asks for those that it needs; a task of its own looks
// all of them up again when routes have changed, so that no change of a service waits for that.
type sources struct {
	lookup SourceAddresses
	task   *Task
	wake   func() // has the loop take what moved

	mu     sync.Mutex
	routes uint64                    // how often they have changed
	known  map[netip.Addr]netip.Addr // by endpoint; invalid: there is none
	moved  map[netip.Addr]bool       // endpoints that see another one since they were taken last
}

func newSources(lookup SourceAddresses, o Observers, wake func()) *sources {
	s := &sources{lookup: lookup, wake: wake, known: map[netip.Addr]netip.Addr{}, moved: map[netip.Addr]bool{}}
	s.task = NewTask("source addresses", sourceShare, s.refresh, o)
	return s
}

// sourced are the endpoints of a service that see one of this machine's addresses.
func sourced(s *lb.Service) (hosts []netip.Addr) {
	for _, e := range s.Endpoints {
		if compile.NeedsSource(*s, e) {
			hosts = append(hosts, e.Addr)
		}
	}
	return hosts
}

// get is this machine's address as an endpoint sees it; invalid: there is none.
func (s *sources) get(endpoint netip.Addr) netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[endpoint]
}

// routesChanged has all of them looked up again, soon.
func (s *sources) routesChanged() {
	s.mu.Lock()
	s.routes++
	s.mu.Unlock()
	s.task.Mark()
}

// forget drops endpoints that no service uses any more.
func (s *sources) forget(hosts []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range hosts {
		delete(s.known, a)
		delete(s.moved, a)
	}
}

// find looks up what is not known yet.
func (s *sources) find(ctx context.Context, hosts []netip.Addr) error {
	s.mu.Lock()
	routes := s.routes
	need := slices.DeleteFunc(unique(hosts), func(a netip.Addr) bool { return s.known[a].IsValid() })
	s.mu.Unlock()
	if len(need) == 0 {
		return nil
	}
	found, _, err := s.lookup.SourceAddresses(ctx, need)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range need {
		s.set(a, found[a])
	}
	if s.routes != routes {
		s.task.Mark() // it may have looked before these were known, and these were perhaps looked up before the change
	}
	return nil
}

// set notes what an endpoint sees. The caller holds mu.
func (s *sources) set(host, source netip.Addr) {
	if old, had := s.known[host]; had && old != source {
		s.moved[host] = true // other services have the endpoint, too
	}
	s.known[host] = source
}

// refresh looks all of them up again. Connections that are there keep theirs.
func (s *sources) refresh(ctx context.Context) error {
	s.mu.Lock()
	hosts := slices.Collect(maps.Keys(s.known))
	s.mu.Unlock()
	if len(hosts) == 0 {
		return nil
	}
	found, _, err := s.lookup.SourceAddresses(ctx, hosts)
	if err != nil {
		return fmt.Errorf("look source addresses up again: %w", err)
	}
	s.mu.Lock()
	for _, a := range hosts {
		if _, still := s.known[a]; still {
			s.set(a, found[a])
		}
	}
	moved := len(s.moved) > 0
	s.mu.Unlock()
	if moved {
		s.wake()
	}
	return nil
}

// takeMoved are the endpoints that see another address since it was called last.
func (s *sources) takeMoved() map[netip.Addr]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.moved) == 0 {
		return nil
	}
	moved := s.moved
	s.moved = map[netip.Addr]bool{}
	return moved
}
