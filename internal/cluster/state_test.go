package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// TestState checks that nodes show each other their roles, connections and services, and name
// services that differ, after a while, until they are alike.
func TestState(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 2)
	services := map[string]string{}
	for i := range 2*statePart + 1 { // more than a frame
		services[fmt.Sprintf("20.20.%d.%d:80/tcp", i/256, i%256)] = "same"
	}
	of := func(name, settings string) func(*Config) {
		list := map[string]string{name: settings, "30.30.30.30:80/tcp": settings}
		for k, v := range services {
			list[k] = v
		}
		return func(c *Config) {
			c.State = func(withServices bool) (s State) {
				s.Roles = []string{"default MASTER"}
				if withServices {
					s.Services = list
				}
				return s
			}
		}
	}
	one := newTable()
	one.open(0, 7, false)
	all.start(0, one, of("40.40.40.40:80/tcp", "a"))
	node, _ := all.start(1, newTable(), of("50.50.50.50:80/tcp", "b"))
	var p report.ClusterPeer
	eventually(t, "the other services are not named", func() bool {
		if list := node.Status().Peers; len(list) == 1 {
			p = list[0]
		}
		return p.Differing > 0
	})
	want := []string{"30.30.30.30:80/tcp has another mode, algorithm or other endpoints there", "40.40.40.40:80/tcp is missing here", "50.50.50.50:80/tcp is missing there"}
	if p.Differing != 3 || !slices.Equal(p.Differences, want) {
		t.Errorf("%d services differ: %q", p.Differing, p.Differences)
	}
	if p.Connections != 7 || p.Peers != 1 || !slices.Equal(p.Roles, []string{"default MASTER"}) {
		t.Errorf("the node shows %+v", p)
	}
}

// TestStateAlike checks that services which differ for a moment, or not at all, are no problem.
func TestStateAlike(t *testing.T) {
	t.Parallel()
	s, warnings := &source{services: map[string]string{"a": "1"}, version: 1}, 0
	warn := func(int, string) { warnings++ }
	own := ownState{changes: 1, State: State{Services: map[string]string{"a": "1"}}}
	s.compare(own, warn)
	if !s.differsSince.IsZero() {
		t.Error("equal services differ")
	}
	own = ownState{changes: 2, State: State{Services: map[string]string{"a": "2"}}}
	s.compare(own, warn)
	if s.differsSince.IsZero() || warnings > 0 {
		t.Errorf("different services: since %v, %d warnings", s.differsSince, warnings)
	}
	s.differsSince = time.Now().Add(-2 * driftTime)
	s.compare(own, warn)
	s.compare(own, warn)
	if warnings != 1 {
		t.Errorf("%d warnings, not 1", warnings)
	}
	own = ownState{changes: 3, State: State{Services: map[string]string{"a": "1"}}}
	if s.compare(own, warn); !s.differsSince.IsZero() || s.warned {
		t.Error("services that are equal again still differ")
	}
}

// TestStateHostile checks that a state of nonsense, or with too many services, is refused.
func TestStateHostile(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "[]", `{"services":7}`, strings.Repeat("{", 1000)} {
		if err := new(source).storeState([]byte(text)); err == nil {
			t.Errorf("the state %.20q is accepted", text)
		}
	}
	s := &source{arriving: map[string]string{}}
	for i := range maxServices {
		s.arriving[fmt.Sprint(i)] = ""
	}
	if err := s.storeState([]byte(`{"services":{"one more":""}}`)); err == nil {
		t.Error("services have no limit")
	}
}

// TestStateLong checks that a node with many roles of long names is shown with those that fit into
// a frame, and exchanges connections.
func TestStateLong(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 2)
	var roles []string
	for i := range maxRoles {
		roles = append(roles, fmt.Sprintf("%s%d MASTER", strings.Repeat("<", lb.MaxNameLength-len("100")), i)) // < takes six bytes
	}
	shown := func(c *Config) {
		c.State = func(bool) State { return State{Roles: roles, Services: map[string]string{"20.20.20.1:80/tcp": "a"}} }
	}
	all.start(0, newTable(), shown)
	node, _ := all.start(1, newTable(), shown)
	eventually(t, "the roles are not shown", func() bool {
		list := node.Status().Peers
		return len(list) == 1 && len(list[0].Roles) > 0
	})
	if p := node.Status().Peers[0]; p.State != report.PeerUp || p.BulkCopies != 1 || p.Roles[0] != roles[0] {
		t.Errorf("the node is %s after %d copies, with %d roles", p.State, p.BulkCopies, len(p.Roles))
	}
}
