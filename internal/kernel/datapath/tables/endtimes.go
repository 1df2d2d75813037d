package tables

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"loxilb/internal/host/monotime"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb"
)

// endTimes hold when connections of endpoints end that have left their services, so that a restart
// goes on with it: a map by endpoint id, pinned beside the others. As removedCounters, packets do
// not see it, and without pins there is no map.
type endTimes struct {
	m   *ebpf.Map
	has map[uint32]struct{} // ids that have a row
}

// endTime is bpf.Ends in the form of the map.
type endTime struct {
	At   int64 // nanoseconds since the machine was started: the map does not live longer
	Rate uint32
	Of   uint32 // endpoint.sum(): a process that knows nothing of this map may have given the id to another one
}

func (t endTime) ends() bpf.Ends {
	left := min(time.Duration(t.At)-monotime.Uptime(), lb.MaxDrainTime)
	return bpf.Ends{At: time.Now().Add(left), Rate: int(t.Rate), Why: removedWhy}
}

// sum distinguishes an endpoint from others that have had its id.
func (e *endpoint) sum() uint32 {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, e.service.id, e.at())
	return h.Sum32()
}

// openEndTimes opens the map pinned in dir, or makes it.
func openEndTimes(dir string) (endTimes, error) {
	m, err := ebpf.NewMapWithOptions(&ebpf.MapSpec{
		Name: "end_uptimes", Type: ebpf.Hash, KeySize: 4, ValueSize: 16, MaxEntries: uint32(MaxEndpoints),
		Flags: unix.BPF_F_NO_PREALLOC, Pinning: ebpf.PinByName,
	}, ebpf.MapOptions{PinPath: dir})
	if err != nil {
		return endTimes{}, fmt.Errorf("open map of ends of connections: %w", err)
	}
	return endTimes{m, map[uint32]struct{}{}}, nil
}

// put stores when connections of an endpoint end.
func (t endTimes) put(e *endpoint, ends bpf.Ends) error {
	if t.m == nil {
		return nil
	}
	t.has[e.id] = struct{}{}
	at := monotime.Uptime() + time.Until(ends.At)
	if err := t.m.Put(e.id, endTime{int64(at), uint32(ends.Rate), e.sum()}); err != nil {
		return fmt.Errorf("note when connections end: %w", err)
	}
	return nil
}

// forget undoes put.
func (t endTimes) forget(id uint32) error {
	if _, has := t.has[id]; !has {
		return nil
	}
	delete(t.has, id)
	if err := rows.Delete(t.m, id); err != nil {
		return fmt.Errorf("forget when connections end: %w", err)
	}
	return nil
}

// all returns the stored times.
func (t endTimes) all() (map[uint32]endTime, error) {
	all := map[uint32]endTime{}
	err := rows.EachBatch(t.m, rows.All, func(ids []uint32, rows []endTime) {
		for i, row := range rows {
			t.has[ids[i]] = struct{}{}
			all[ids[i]] = row
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read when connections end: %w", err)
	}
	return all, nil
}

func (t endTimes) close() {
	if t.m != nil {
		_ = t.m.Close() // it stays pinned
	}
}
