package tables

// If a service compares loads, the packet path counts active connections of its endpoints in one
// counter for all CPUs (ENDPOINT_COMPARED). The earlier counts of each CPU are moved there.

// Compared returns the ids of the endpoints of services that compare loads.
func (t *Tables) Compared() (ids []uint32) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, s := range t.services {
		for _, e := range s.order {
			if e.has(endpointCompared) {
				ids = append(ids, e.id)
			}
		}
	}
	return ids
}

// ComparedSince returns the endpoints whose loads have been compared since the last call.
func (t *Tables) ComparedSince() []uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	ids := t.newlyCompared
	t.newlyCompared = nil
	return ids
}
