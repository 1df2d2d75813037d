package httpapi

import (
	"net/http"
	"sync"

	"loxilb/internal/access"
)

const (
	maxStreams = 64 // of events, at once
	// Users who may not do everything leave some of them to those who may, and to each other.
	maxStreamsOfUsers = 48
	maxStreamsOfUser  = 16
)

// followers counts streams.
type followers struct {
	mu         sync.Mutex
	all, users int            // of all, and of those who have not the role admin
	of         map[string]int // of each of these, by name
}

// enter takes a place, or says why there is none.
func (f *followers) enter(who *principal) *problem {
	f.mu.Lock()
	defer f.mu.Unlock()
	user := who.role != access.Admin
	switch {
	case f.all >= maxStreams || user && f.users >= maxStreamsOfUsers:
		return refuse(http.StatusServiceUnavailable, "%d clients follow events already, and no more can: try again later, or ask for a list", f.all)
	case user && f.of[who.name] >= maxStreamsOfUser:
		return refuse(http.StatusServiceUnavailable, "user %s follows events %d times already, and no more can: close other pages, or ask for a list", who.name, maxStreamsOfUser)
	}
	f.add(who, 1)
	return nil
}

// leave gives the place back.
func (f *followers) leave(who *principal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.add(who, -1)
}

func (f *followers) add(who *principal, n int) {
	f.all += n
	if who.role == access.Admin {
		return
	}
	if f.of == nil {
		f.of = map[string]int{}
	}
	f.users += n
	if f.of[who.name] += n; f.of[who.name] == 0 {
		delete(f.of, who.name)
	}
}
