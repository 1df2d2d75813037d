package reconcile

import (
	"net/netip"
	"sync"
	"time"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/status"
	"loxilb/internal/lb"
)

// misfits are endpoints that packets of a service do not get to in its mode, although there is a way. Their services are
// applied; the endpoints have a status that says why. Hardly any service has one.
type misfits struct {
	mu sync.Mutex
	of map[lb.Key][]status.Status
}

// note looks at a service as the data path has it now; nil: it is gone.
func (m *misfits) note(key lb.Key, s *lb.Service, way func(netip.Addr) compile.Way) {
	var list []status.Status
	if s != nil {
		for _, e := range s.Endpoints {
			if err := way(e.Addr).Misfit(*s, e); err != nil {
				id := status.ID{Kind: "endpoint", Key: e.Addr.String()}
				list = append(list, status.Status{ID: id, Desired: 1, Since: time.Now(), Err: err, Attempts: 1})
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range list {
		for _, old := range m.of[key] {
			if old.ID == list[i].ID && old.Err.Error() == list[i].Err.Error() {
				list[i].Since = old.Since
			}
		}
	}
	switch {
	case list == nil:
		delete(m.of, key)
	case m.of == nil:
		m.of = map[lb.Key][]status.Status{key: list}
	default:
		m.of[key] = list
	}
}

// statuses of all of them, each endpoint once.
func (m *misfits) statuses() (out []status.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := map[status.ID]bool{}
	for _, list := range m.of {
		for _, s := range list {
			if !seen[s.ID] {
				seen[s.ID] = true
				out = append(out, s)
			}
		}
	}
	return out
}
