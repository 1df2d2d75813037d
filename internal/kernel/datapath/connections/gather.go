package connections

import (
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/testrun"
)

// gatherLoads is the program that moves counts of CPUs to where services compare them.
const gatherLoads = "loxilb_gather"

// GatherLoads moves the active connections that CPUs have counted for endpoints to where services
// compare them (bpf/sweep/gather.h). Readers of counts see no difference. A packet that has found
// an endpoint before its service began to compare loads counts for its CPU afterwards: the sweep
// gathers that, too.
func (t *Table) GatherLoads(ids []uint32) error {
	t.gathering.Lock() // two runs for an endpoint would move the same counts
	defer t.gathering.Unlock()
	for _, id := range ids {
		opts := ebpf.RunOptions{Data: testrun.EmptyFrame(), Context: testrun.SKB{Mark: id}}
		if _, err := t.programs.run(gatherLoads, &opts); err != nil {
			return fmt.Errorf("gather loads of endpoints: %w", err)
		}
	}
	return nil
}
