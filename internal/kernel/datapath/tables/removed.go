package tables

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// removedCounters store the counts of removed endpoints, per service and in total, so no sum
// ever decreases, even over a restart: a map by service id, pinned with the others. Packets do not
// use it, so it is not in abi.h. Without pins there is no restart, and no map.
//
// If the process is killed between the writes to this map and to the endpoint's row, the endpoint
// is counted twice. The other order would lose its counts.
type removedCounters struct{ m *ebpf.Map }

// allRemoved is the row of all removed endpoints, including those of removed services.
const allRemoved = uint32(MaxServices)

// removedRow is a row of the map.
type removedRow struct {
	Connections, PacketsIn, BytesIn, PacketsOut, BytesOut uint64

	Handshakes report.Handshakes
}

// openRemoved opens the map pinned in dir, or makes it.
func openRemoved(dir string) (removedCounters, error) {
	spec := &ebpf.MapSpec{
		Name: "removed_totals", Type: ebpf.Hash, KeySize: 4, ValueSize: uint32(unsafe.Sizeof(removedRow{})), MaxEntries: allRemoved + 1,
		Flags: unix.BPF_F_NO_PREALLOC, Pinning: ebpf.PinByName,
	}
	m, err := ebpf.NewMapWithOptions(spec, ebpf.MapOptions{PinPath: dir})
	if err != nil {
		return removedCounters{}, fmt.Errorf("open map of counters of removed endpoints: %w", err)
	}
	return removedCounters{m}, nil
}

func (r removedRow) counters() counters {
	c := counters{connections: r.Connections, shakes: r.Handshakes}
	c.in.Packets, c.in.Bytes, c.out.Packets, c.out.Bytes = r.PacketsIn, r.BytesIn, r.PacketsOut, r.BytesOut
	return c
}

// put stores the counts of the removed endpoints of a service, or of all.
func (r removedCounters) put(id uint32, c counters) error {
	if r.m == nil {
		return nil
	}
	if c == (counters{}) {
		if err := rows.Delete(r.m, id); err != nil {
			return fmt.Errorf("delete counters of removed endpoints: %w", err)
		}
		return nil
	}
	row := removedRow{c.connections, c.in.Packets, c.in.Bytes, c.out.Packets, c.out.Bytes, c.shakes}
	if err := r.m.Put(id, row); err != nil {
		return fmt.Errorf("write counters of removed endpoints: %w", err)
	}
	return nil
}

// each reads all rows.
func (r removedCounters) each(f func(id uint32, c counters)) error {
	err := rows.EachBatch(r.m, rows.All, func(ids []uint32, list []removedRow) {
		for i, row := range list {
			f(ids[i], row.counters())
		}
	})
	if err != nil {
		return fmt.Errorf("read counters of removed endpoints: %w", err)
	}
	return nil
}

func (r removedCounters) close() {
	if r.m != nil {
		_ = r.m.Close() // it stays pinned
	}
}

// AllStats reads the counters of all endpoints in batches; ServiceStats makes system calls for
// each. It calls yield with the services of these keys, by index of the key, and returns the
// machine's counters: the sum of all current and removed endpoints. yield must not change services,
// which wait meanwhile: 100,000 endpoints take some 100 ms.
func (t *Tables) AllStats(keys []bpf.TcServiceKey, yield func(place int, s *report.ServiceStats)) (report.EndpointStats, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	type row struct { // small: there may be 100,000
		traffic
		connections uint64
		live
		refused
		steps bpf.TcHandshakeProgress
	}
	counted := make([]row, t.endpointIDs.Top()) // by id
	r, err := t.newCountReader(hasCounted, func(id uint32, state *bpf.TcEndpointState, moved traffic, steps *bpf.TcHandshakeProgress) error {
		counted[id] = row{moved, state.Connections, liveOf(state), refusedOf(state), *steps}
		return nil
	})
	if err == nil {
		err = r.failure(t.arrays.EndpointStates.Each(len(counted), r.segment))
	}
	if err != nil {
		return report.EndpointStats{}, err
	}
	read := func(id uint32) (c counters, err error) {
		one := &counted[id]
		if *one != (row{}) {
			c = counters{traffic: one.traffic, connections: one.connections, live: one.live, refused: one.refused}
			c.shakes, err = t.handshakes.read(id, &one.steps) // makes no system call
		}
		return c, err
	}
	for i, key := range keys {
		if s := t.services[key]; s != nil {
			stats := t.serviceStats(s, read)
			yield(i, &stats)
		}
	}
	sum := t.removedTotal
	for id := range counted {
		c, err := read(uint32(id))
		if err != nil {
			return report.EndpointStats{}, err
		}
		sum.add(c)
	}
	return sum.stats(), nil
}

// EachServiceStats calls yield with the counters of the services with these keys, by index of the
// key. It reads in batches if there are many keys. yield must not change services.
func (t *Tables) EachServiceStats(keys []bpf.TcServiceKey, yield func(place int, s *report.ServiceStats)) error {
	t.mu.RLock()
	many := len(keys)*fewOfASlice > len(t.services)
	t.mu.RUnlock()
	if many {
		_, err := t.AllStats(keys, yield)
		return err
	}
	for i, key := range keys {
		if s, ok := t.ServiceStats(key); ok {
			yield(i, &s)
		}
	}
	return nil
}

// hasCounted reports whether a counter of an endpoint is not 0.
func hasCounted(_ uint32, state *bpf.TcEndpointState) bool { return *state != (bpf.TcEndpointState{}) }

// Refusal is the number of packets that a service has refused since its creation, for a reason of
// bpf/abi.h.
type Refusal struct {
	Service string // its key
	Name    string // the user's name for it; may be empty
	Reason  string
	Packets uint64
}

// EachRefusal calls yield with the refusals of each service. It reads all services in a few system
// calls.
func (t *Tables) EachRefusal(yield func(Refusal)) error {
	return t.eachRefusing(func(s *service, state *bpf.TcServiceState) { s.refusals(state, yield) })
}

// EachRefused calls yield with each service that has refused packets, and their number, for any
// reason.
func (t *Tables) EachRefused(yield func(key lb.Key, packets uint64)) error {
	return t.eachRefusing(func(s *service, state *bpf.TcServiceState) {
		counts := report.Refusals(state.Refused)
		yield(s.userKey(), counts.Sum())
	})
}

// eachRefusing calls yield for each service that has refused packets. There are usually few of
// them, so an index of all services is made only for the first.
func (t *Tables) eachRefusing(yield func(*service, *bpf.TcServiceState)) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var byID map[uint32]*service
	err := rows.EachBatch(t.maps.ServiceStates, int(t.serviceIDs.Top()), func(ids []uint32, states []bpf.TcServiceState) {
		for i := range states {
			if states[i].Refused == [report.RefusalReasons]uint64{} {
				continue
			}
			if byID == nil {
				byID = t.servicesByID()
			}
			if s := byID[ids[i]]; s != nil {
				yield(s, &states[i])
			}
		}
	})
	if err != nil {
		return fmt.Errorf("read service counters: %w", err)
	}
	return nil
}

func (t *Tables) servicesByID() map[uint32]*service {
	byID := make(map[uint32]*service, len(t.services))
	for _, s := range t.services {
		byID[s.id] = s
	}
	return byID
}

func (s *service) refusals(state *bpf.TcServiceState, yield func(Refusal)) {
	counts := report.Refusals(state.Refused)
	counts.Each(func(reason report.RefusalReason, packets uint64) {
		yield(Refusal{s.key.String(), s.name, reason.String(), packets})
	})
}
