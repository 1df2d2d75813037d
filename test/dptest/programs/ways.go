package programs

import (
	"fmt"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// MaxWays is the number of rows for next hops; the first row is for sockets of this machine.
const MaxWays = 1 << 14

// Ways returns the rows of next hops in use.
func (r *Runner) Ways() (map[uint32]bpf.TcWay, error) {
	all := map[uint32]bpf.TcWay{}
	err := rows.EachBatch(r.Collection.Maps.Ways, MaxWays, func(keys []uint32, ways []bpf.TcWay) {
		for i, w := range ways {
			if w.Claim != 0 {
				all[keys[i]] = w
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read ways: %w", err)
	}
	return all, nil
}

// SetWays writes rows.
func (r *Runner) SetWays(ways map[uint32]bpf.TcWay) error {
	for i, w := range ways {
		if err := r.Collection.Maps.Ways.Put(i, w); err != nil {
			return fmt.Errorf("write way %d: %w", i, err)
		}
	}
	return nil
}
