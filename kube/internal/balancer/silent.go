package balancer

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// isSilentLocked reports whether the balancer has not answered for longer than the replacement of
// its daemon may take. Until then, statuses of Services stay as they are: an upgrade must not write
// each of them twice. m.mu is held.
func (m *member) isSilentLocked() bool {
	last := m.added
	if m.answered.After(last) {
		last = m.answered
	}
	return m.tried && !m.reachable && time.Since(last) >= restartTime
}

// silenceChanged reports whether isSilentLocked has changed since the last call.
func (m *member) silenceChanged() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.reportedSilent
	m.reportedSilent = m.isSilentLocked()
	return m.reportedSilent != before
}

// isSilent is isSilentLocked for callers without m.mu.
func (m *member) isSilent() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.isSilentLocked()
}

// changedAll calls Changed for all Services.
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
