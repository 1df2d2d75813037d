package rest

import (
	"net/http"
	"sync"

	"loxilb/internal/api/access"
)

// ShareLimits bound the concurrent uses of a resource, such as streams, that last until the client
// disconnects. Users who are not administrators have smaller limits, so they leave room for
// administrators and for each other.
type ShareLimits struct {
	All, Users, User int
	Verb             string // "follow events"
	Instead          string // "ask for a list"
}

// Shares counts concurrent uses by clients.
type Shares struct {
	Limits ShareLimits

	mu         sync.Mutex
	all, users int            // all uses, and those by users who are not administrators
	of         map[string]int // uses of each of these users, by name
}

// NewShares returns unused shares.
func NewShares(limits ShareLimits) *Shares { return &Shares{Limits: limits} }

// Enter counts a use, or returns a Problem if a limit is reached.
func (s *Shares) Enter(who *Principal) *Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	user := who.Role != access.Admin
	switch {
	case s.all >= s.Limits.All || user && s.users >= s.Limits.Users:
		return Refuse(http.StatusServiceUnavailable,
			"%d clients %s already, which is the limit: try again later, or %s", s.all, s.Limits.Verb, s.Limits.Instead)
	case user && s.of[who.Name] >= s.Limits.User:
		return Refuse(http.StatusServiceUnavailable,
			"%d clients of user %s %s already, which is the limit for a user: close other pages, or %s",
			s.Limits.User, who.Name, s.Limits.Verb, s.Limits.Instead)
	}
	s.add(who, 1)
	return nil
}

// Leave ends a use.
func (s *Shares) Leave(who *Principal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(who, -1)
}

// Held returns the number of current uses.
func (s *Shares) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

func (s *Shares) add(who *Principal, n int) {
	s.all += n
	if who.Role == access.Admin {
		return
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.users += n
	if s.of[who.Name] += n; s.of[who.Name] == 0 {
		delete(s.of, who.Name)
	}
}
