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

// Ways finds the ways to hosts, with this machine's addresses as packets to them have them.
type Ways interface {
	// Ways returns the way to each host that has one, and why the others have none.
	Ways(ctx context.Context, hosts []netip.Addr) (found map[netip.Addr]netdev.Way, missing map[netip.Addr]error, err error)
}

// sourceShare bounds the part of the time that looking sources up again takes, however fast routes change.
const sourceShare = 20

// sources knows the ways to endpoints, and with them this machine's addresses as endpoints see them. The loop of the services asks for those that it needs; a task of its own looks
// all of them up again when routes have changed, so that no change of a service waits for that.
type sources struct {
	lookup Ways
	task   *Task
	wake   func() // has the loop take what moved

	mu     sync.Mutex
	routes uint64                    // how often they have changed
	known  map[netip.Addr]netdev.Way // by endpoint; zero: there is none
	moved  map[netip.Addr]bool       // endpoints that have another one since they were taken last
}

func newSources(lookup Ways, o Observers, wake func()) *sources {
	s := &sources{lookup: lookup, wake: wake, known: map[netip.Addr]netdev.Way{}, moved: map[netip.Addr]bool{}}
	s.task = NewTask("source addresses", sourceShare, s.refresh, o)
	return s
}

// sourced are the endpoints of a service whose connections depend on the way to them.
func sourced(s *lb.Service) (hosts []netip.Addr) {
	for _, e := range s.Endpoints {
		if compile.NeedsWay(*s, e) {
			hosts = append(hosts, e.Addr)
		}
	}
	return hosts
}

// get is the way to an endpoint; zero: there is none.
func (s *sources) get(endpoint netip.Addr) compile.Way {
	s.mu.Lock()
	defer s.mu.Unlock()
	return compile.Way(s.known[endpoint])
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
	need := slices.DeleteFunc(unique(hosts), func(a netip.Addr) bool { return s.known[a].Source.IsValid() })
	s.mu.Unlock()
	if len(need) == 0 {
		return nil
	}
	found, _, err := s.lookup.Ways(ctx, need)
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

// set notes the way to an endpoint. The caller holds mu.
func (s *sources) set(host netip.Addr, way netdev.Way) {
	if old, had := s.known[host]; had && old != way {
		s.moved[host] = true // other services have the endpoint, too
	}
	s.known[host] = way
}

// refresh looks all of them up again. Connections that are there keep theirs.
func (s *sources) refresh(ctx context.Context) error {
	s.mu.Lock()
	hosts := slices.Collect(maps.Keys(s.known))
	s.mu.Unlock()
	if len(hosts) == 0 {
		return nil
	}
	found, _, err := s.lookup.Ways(ctx, hosts)
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

// takeMoved are the endpoints that have another way since it was called last.
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
