package balancer

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// isSilent reports whether the balancer has not answered for longer than its daemon may need to be
// replaced. Until then, statuses of Services stay as they are: an upgrade must not write each of
// them twice. m.mu is held.
func (m *member) isSilent() bool {
	last := m.added
	if m.answered.After(last) {
		last = m.answered
	}
	return m.tried && !m.reachable && time.Since(last) >= restartTime
}

// silenceChanged reports whether the balancer has become silent, or is no longer, since the last
// call.
func (m *member) silenceChanged() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.silent
	m.silent = m.isSilent()
	return m.silent != before
}

func (m *member) wasSilent() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.isSilent()
}

// changedAll has all Services report the state of the balancers.
func (f *Fleet) changedAll() {
	f.mu.RLock()
	services := make([]types.NamespacedName, 0, len(f.desired))
	for service := range f.desired {
		services = append(services, service)
	}
	f.mu.RUnlock()
	for _, service := range services {
		f.Changed(service)
	}
}
