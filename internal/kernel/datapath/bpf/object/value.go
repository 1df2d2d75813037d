package object

import (
	"fmt"
	"io"
	"strings"

	"github.com/cilium/ebpf"
)

// valueSection is the prefix of the name of a section of variables. If the rest is a map's name,
// the section stands for the map's only value: VALUE_OF in bpf/maps.h.
const valueSection = ".data."

// Read returns the spec of an object, in which programs access values of maps in place.
func Read(file io.ReaderAt) (*ebpf.CollectionSpec, error) {
	spec, err := ebpf.LoadCollectionSpecFromReader(file)
	if err != nil {
		return nil, err
	}
	return spec, accessValues(spec)
}

// accessValues removes the sections that stand for values of maps. Programs access the maps
// instead.
func accessValues(spec *ebpf.CollectionSpec) error {
	for section, value := range spec.Maps {
		name, ok := strings.CutPrefix(section, valueSection)
		m := spec.Maps[name]
		if !ok || m == nil {
			continue
		}
		if m.Type != ebpf.Array || m.MaxEntries != 1 || m.ValueSize != value.ValueSize {
			return fmt.Errorf("the section %s has %d bytes, but the map %s is of type %v with %d values of %d bytes", section, value.ValueSize, name, m.Type, m.MaxEntries, m.ValueSize)
		}
		for _, p := range spec.Programs {
			for i, ins := range p.Instructions {
				if ins.IsLoadFromMap() && ins.Reference() == section {
					p.Instructions[i] = ins.WithReference(name)
				}
			}
		}
		delete(spec.Maps, section)
	}
	return nil
}
