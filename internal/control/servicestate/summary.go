package servicestate

import (
	"fmt"
	"strings"
)

// Serves reports whether a service in this state sends new connections to endpoints that are not
// known to be down. It returns true also for Failed and Pending, where that is unknown.
func (s State) Serves() bool {
	switch s {
	case Down, Panic, Draining, Drained:
		return false
	}
	return true
}

// Summary counts the endpoints by state, the worst first: "1 down, 2 drained".
func (s *Service) Summary() string {
	if len(s.Endpoints) == 0 {
		return "no endpoints"
	}
	count := map[State]int{}
	for _, state := range s.Endpoints {
		count[state]++
	}
	var parts []string
	for _, state := range EndpointStates() {
		if n := count[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(parts, ", ")
}
