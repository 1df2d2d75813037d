package tables

import (
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb/report"
)

// Census reads the counters of all endpoints in batches, where ServiceStats makes system calls for
// each. It calls yield with those of the services that have one of these keys, by the key's place,
// and returns those of the machine: of every endpoint that there is, or was. yield may not change
// services, which wait meanwhile: 100,000 endpoints take some 100 ms.
func (t *Tables) Census(keys []bpf.TcServiceKey, yield func(place int, s *report.ServiceStats)) (report.EndpointStats, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	type row struct { // as small as may be: there are many
		traffic
		connections uint64
		live
		refused
	}
	counted := make([]row, t.endpointIDs.Top()) // by id
	r, err := t.newCountReader(hasCounted, func(id uint32, state *bpf.TcEndpointState, moved traffic) error {
		counted[id] = row{moved, state.Connections, liveOf(state), refusedOf(state)}
		return nil
	})
	if err == nil {
		err = r.failure(rows.EachOf(t.arrays.EndpointStates, len(counted), r.segment))
	}
	if err != nil {
		return report.EndpointStats{}, err
	}
	read := func(id uint32) (c counters, err error) {
		one := &counted[id]
		if *one != (row{}) {
			c = counters{traffic: one.traffic, connections: one.connections, live: one.live, refused: one.refused}
			c.shakes, err = t.handshakes.read(id) // which takes no system call
		}
		return c, err
	}
	for i, key := range keys {
		if s := t.services[key]; s != nil {
			stats := t.serviceStats(s, read)
			yield(i, &stats)
		}
	}
	sum := t.gone
	for id := range counted {
		c, err := read(uint32(id))
		if err != nil {
			return report.EndpointStats{}, err
		}
		sum.add(c)
	}
	return sum.stats(), nil
}

// EachServiceStats calls yield with the counters of the services that have one of these keys, by
// the key's place: in batches, where these are many of all. yield may not change services.
func (t *Tables) EachServiceStats(keys []bpf.TcServiceKey, yield func(place int, s *report.ServiceStats)) error {
	t.mu.RLock()
	many := len(keys)*fewOfASlice > len(t.services)
	t.mu.RUnlock()
	if many {
		_, err := t.Census(keys, yield)
		return err
	}
	for i, key := range keys {
		if s, ok := t.ServiceStats(key); ok {
			yield(i, &s)
		}
	}
	return nil
}

// hasCounted reports whether an endpoint has counted anything.
func hasCounted(_ uint32, state *bpf.TcEndpointState) bool { return *state != (bpf.TcEndpointState{}) }
