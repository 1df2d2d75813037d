package programs

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
)

// HasPaths reports whether an SCTP service has had several VIPs.
func (r *Runner) HasPaths() bool { return r.Collection.SCTPPaths.Table() != nil }

// AgePaths ages the paths of SCTP associations.
func (r *Runner) AgePaths(by time.Duration) error {
	table := r.Collection.SCTPPaths.Table()
	if table == nil {
		return nil
	}
	all := map[bpf.TcSctpPathKey]bpf.TcSctpPath{}
	var key bpf.TcSctpPathKey
	var row bpf.TcSctpPath
	it := table.Iterate()
	for it.Next(&key, &row) {
		all[key] = row
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("age paths: %w", err)
	}
	for key, row := range all {
		row.Seen -= r.Collection.Jiffies(by)
		if err := table.Update(key, row, ebpf.UpdateExist); err != nil {
			return fmt.Errorf("age paths: %w", err)
		}
	}
	return nil
}
