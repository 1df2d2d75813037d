package loader

import (
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
)

// LoadTracing loads the program that may take the place of Program's while somebody traces packets
// (bpf/observe/trace.h). It is the caller's.
func (c *Collection) LoadTracing(layer3, egress bool) (*ebpf.Program, error) {
	spec, err := bpf.LoadTcTrace()
	if err != nil {
		return nil, fmt.Errorf("read the object of programs that trace: %w", err)
	}
	return LoadTwin(spec, c.all, programName(layer3, egress))
}

// LoadTwin loads a program of an object that is compiled of the same source as another one, with
// the maps, the variables and the constants of that one.
func LoadTwin(spec *ebpf.CollectionSpec, all map[string]*ebpf.Map, name string) (*ebpf.Program, error) {
	ShareMaps(spec, all)
	p, err := LoadProgram(spec, all, nil, name)
	if err != nil {
		return nil, fmt.Errorf("load a program that traces: %w", err)
	}
	return p, nil
}
