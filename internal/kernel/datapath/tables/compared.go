package tables

// Of services that compare loads, the packet path counts active connections in one place
// (ENDPOINT_COMPARED): those that CPUs have counted for themselves are moved there.

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

// ComparedSince returns those of the endpoints that began to be compared since the last call.
func (t *Tables) ComparedSince() []uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	ids := t.newlyCompared
	t.newlyCompared = nil
	return ids
}
