package dryrun

import (
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// counts are the counters of a run, over all CPUs.
type counts struct {
	drops, passes map[uint32]uint64
	rules         map[uint32]uint64 // by counter
	challenges    uint64
}

func (d *replica) counts() (c counts, err error) {
	if c.drops, err = totals(d.Maps.Drops); err != nil {
		return c, err
	}
	if c.passes, err = totals(d.Maps.Passes); err != nil {
		return c, err
	}
	var each []bpf.TcChallengeCounts
	if err := d.Maps.Challenges.Lookup(uint32(0), &each); err != nil {
		return c, fmt.Errorf("read challenges: %w", err)
	}
	for i := range each {
		c.challenges += each[i].Sent
	}
	c.rules = map[uint32]uint64{}
	for i, m := range d.hits.Segments() {
		err := eachOfAllCPUs(m, d.cpus, func(row uint32, hits []bpf.TcRuleHit) {
			for _, h := range hits {
				if h.Packets > 0 {
					c.rules[uint32(i)*d.hits.PerSegment()+row] += h.Packets
				}
			}
		})
		if err != nil {
			return c, fmt.Errorf("read counters of rules: %w", err)
		}
	}
	return c, nil
}

// eachOfAllCPUs reads a per-CPU array with one system call.
func eachOfAllCPUs[V any](m *ebpf.Map, cpus int, f func(row uint32, values []V)) error {
	keys, values := make([]uint32, m.MaxEntries()), make([]V, int(m.MaxEntries())*cpus)
	var cursor ebpf.MapBatchCursor
	n, err := m.BatchLookup(&cursor, keys, values, nil)
	if err != nil && !rows.IsLast(err) {
		return err
	}
	for i := range n {
		f(keys[i], values[i*cpus:(i+1)*cpus])
	}
	return nil
}

func totals(m *ebpf.Map) (map[uint32]uint64, error) {
	all := map[uint32]uint64{}
	cpus, err := ebpf.PossibleCPU()
	if err == nil {
		err = eachOfAllCPUs(m, cpus, func(row uint32, each []uint64) {
			for _, n := range each {
				all[row] += n
			}
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	return all, nil
}

func (c counts) since(before counts) counts {
	return counts{drops: increases(before.drops, c.drops), passes: increases(before.passes, c.passes), rules: increases(before.rules, c.rules), challenges: c.challenges - before.challenges}
}

// increases returns the increases of counters.
func increases(before, now map[uint32]uint64) map[uint32]uint64 {
	up := map[uint32]uint64{}
	for i, n := range now {
		if n > before[i] {
			up[i] = n - before[i]
		}
	}
	return up
}

// first returns any row.
func first(rows map[uint32]uint64) (uint32, bool) {
	for i := range rows {
		return i, true
	}
	return 0, false
}

// reason returns the name of the counted reason for a drop; "" without a drop.
func (d *effects) reason(of *replica) string {
	if i, counted := first(d.counted.drops); counted {
		return of.live.DropReasons()[i]
	}
	return ""
}
