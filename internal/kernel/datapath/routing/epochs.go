package routing

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
)

const (
	// afterRestart is the distance between the generations of routes of a new daemon and of the
	// previous one, whose programs may still run for a moment. So the two never use the same epoch,
	// or each other's next hops.
	afterRestart = uint32(bpf.TcLimitEPOCHS_OF_DAEMON)
	// neighbourBits are the bits of a generation of neighbours; the bit above marks a row that is
	// being written.
	neighbourBits = 1<<31 - 1
)

// generations are the variables of an object with programs.
type generations struct{ routes, neighbours *ebpf.Variable }

// epochs are the generations of routes and neighbours, and the variables that hold them.
type epochs struct {
	routes, neighbours uint32
	kept               *ebpf.Map // has the generations for the next daemon
	written            []generations
}

// newEpochs continues where an earlier process ended.
func newEpochs(c *loader.Collection) (*epochs, error) {
	var last bpf.TcHopGenerations
	if err := c.Maps.Generations.Lookup(uint32(0), &last); err != nil {
		return nil, fmt.Errorf("read generations of next hops: %w", err)
	}
	return &epochs{
		routes: last.Routes + afterRestart, neighbours: last.Neighbours, kept: c.Maps.Generations,
		written: []generations{{c.Variables.HopGeneration, c.Variables.NeighbourGeneration}},
	}, nil
}

// write stores the generations for the next daemon, then sets them in the programs.
func (e *epochs) write() error {
	e.neighbours &= neighbourBits
	errs := []error{e.kept.Put(uint32(0), bpf.TcHopGenerations{Routes: e.routes, Neighbours: e.neighbours})}
	for _, v := range e.written {
		errs = append(errs, v.routes.Set(e.routes), v.neighbours.Set(e.neighbours))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("write generations of next hops: %w", err)
	}
	return nil
}
