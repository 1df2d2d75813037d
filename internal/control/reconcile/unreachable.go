package reconcile

import (
	"net/netip"
	"sync"
	"time"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/status"
	"loxilb/internal/lb"
)

// unreachable holds the endpoints that a service cannot reach in its mode, although a route exists.
// The service is applied; a status of the endpoint has the reason. Few services have such
// endpoints.
type unreachable struct {
	mu        sync.Mutex
	byService map[lb.Key][]status.Status
}

// record updates the unreachable endpoints of a service; nil: it was deleted.
func (u *unreachable) record(key lb.Key, s *lb.Service, path func(netip.Addr) compile.Path) {
	var list []status.Status
	if s != nil {
		for _, e := range s.Endpoints {
			if err := path(e.Addr).Check(*s, e); err != nil {
				id := status.ID{Kind: "endpoint", Key: e.Addr.String()}
				list = append(list, status.Status{ID: id, Desired: 1, Since: time.Now(), Err: err, Attempts: 1})
			}
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range list {
		for _, old := range u.byService[key] {
			if old.ID == list[i].ID && old.Err.Error() == list[i].Err.Error() {
				list[i].Since = old.Since
			}
		}
	}
	switch {
	case list == nil:
		delete(u.byService, key)
	case u.byService == nil:
		u.byService = map[lb.Key][]status.Status{key: list}
	default:
		u.byService[key] = list
	}
}

// statuses returns the statuses of all endpoints, each once.
func (u *unreachable) statuses() (out []status.Status) {
	u.mu.Lock()
	defer u.mu.Unlock()
	seen := map[status.ID]bool{}
	for _, list := range u.byService {
		for _, s := range list {
			if !seen[s.ID] {
				seen[s.ID] = true
				out = append(out, s)
			}
		}
	}
	return out
}
