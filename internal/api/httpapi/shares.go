package httpapi

import (
	"net/http"
	"sync"

	"loxilb/internal/api/access"
)

// shareLimits bound what clients hold at once of something that ends only when they leave. Users
// who are not administrators leave a part of it to administrators, and to each other.
type shareLimits struct {
	all, users, user int
	verb             string // "follow events"
	instead          string // "ask for a list"
}

// eventStreams are the streams of events, rates and traces.
func eventStreams() shareLimits {
	return shareLimits{all: 64, users: 48, user: 16, verb: "follow events", instead: "ask for a list"}
}

// watches are the streams of connections. The packet path has four places; one is left for the flow
// log.
func watches() shareLimits {
	return shareLimits{all: 3, users: 2, user: 1, verb: "watch connections", instead: "ask for a list"}
}

// routeReads are the requests for routes. Each page of them reads the whole table.
func routeReads() shareLimits {
	return shareLimits{all: 8, users: 6, user: 3, verb: "read routes", instead: "end one of these requests"}
}

// shares counts what clients hold.
type shares struct {
	limits shareLimits

	mu         sync.Mutex
	all, users int            // of all, and of users who are not administrators
	of         map[string]int // of each of these, by name
}

// enter takes a place, or says why there is none.
func (s *shares) enter(who *principal) *problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	user := who.role != access.Admin
	switch {
	case s.all >= s.limits.all || user && s.users >= s.limits.users:
		return refuse(http.StatusServiceUnavailable,
			"%d clients %s already, which is the limit: try again later, or %s", s.all, s.limits.verb, s.limits.instead)
	case user && s.of[who.name] >= s.limits.user:
		return refuse(http.StatusServiceUnavailable,
			"%d clients of user %s %s already, which is the limit for a user: close other pages, or %s",
			s.limits.user, who.name, s.limits.verb, s.limits.instead)
	}
	s.add(who, 1)
	return nil
}

// leave gives the place back.
func (s *shares) leave(who *principal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(who, -1)
}

func (s *shares) add(who *principal, n int) {
	s.all += n
	if who.role == access.Admin {
		return
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.users += n
	if s.of[who.name] += n; s.of[who.name] == 0 {
		delete(s.of, who.name)
	}
}
