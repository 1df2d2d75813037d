package programs

import (
	"fmt"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// MaxNextHops is the number of rows for next hops; the first row is for sockets of this machine.
const MaxNextHops = 1 << 14

// NextHops returns the rows of next hops in use.
func (r *Runner) NextHops() (map[uint32]bpf.TcHop, error) {
	all := map[uint32]bpf.TcHop{}
	err := rows.EachBatch(r.Collection.Maps.Ways, MaxNextHops, func(keys []uint32, hops []bpf.TcHop) {
		for i, w := range hops {
			if w.Claim != 0 {
				all[keys[i]] = w
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read next hops: %w", err)
	}
	return all, nil
}

// SetNextHops writes rows of next hops.
func (r *Runner) SetNextHops(hops map[uint32]bpf.TcHop) error {
	for i, w := range hops {
		if err := r.Collection.Maps.Ways.Put(i, w); err != nil {
			return fmt.Errorf("write next hop %d: %w", i, err)
		}
	}
	return nil
}
