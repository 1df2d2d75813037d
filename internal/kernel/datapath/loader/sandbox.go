package loader

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
)

// Beside is a second instance of a collection's program, with some of the collection's maps and
// others of its own, which no packet of the network uses.
type Beside struct {
	Maps      bpf.TcMaps
	Variables bpf.TcVariables

	section map[string]*ebpf.Map // of variables
	all     map[string]*ebpf.Map
	spec    *ebpf.CollectionSpec

	mu       sync.Mutex
	programs map[string]*ebpf.Program
}

// Beside makes the maps, except for the shared ones. rows and inner are the sizes of some of the
// others, or of the maps in them. Programs are loaded on demand.
func (c *Collection) Beside(shared []string, rows, inner map[string]uint32) (*Beside, error) {
	spec, err := bpf.LoadTc()
	if err != nil {
		return nil, fmt.Errorf("read data path object: %w", err)
	}
	if err := c.Configure(spec); err != nil {
		return nil, err
	}
	for name, n := range rows {
		spec.Maps[name].MaxEntries = n
	}
	for name, n := range inner {
		spec.Maps[name].InnerMap.MaxEntries = n
	}
	have := make(map[string]*ebpf.Map, len(shared))
	for _, name := range shared {
		m := c.all[name]
		if m == nil {
			return nil, fmt.Errorf("there is no map %s", name)
		}
		have[name], spec.Maps[name].MaxEntries = m, m.MaxEntries()
	}
	b := &Beside{spec: spec, programs: map[string]*ebpf.Program{}, section: map[string]*ebpf.Map{}}
	collection, err := MakeMaps(spec, ebpf.CollectionOptions{MapReplacements: have})
	if err != nil {
		return nil, fmt.Errorf("make separate maps: %w", err)
	}
	b.all = maps.Clone(collection.Maps)
	for name, m := range b.all {
		if internalMap(name) {
			b.section[name] = m
		}
	}
	if err := errors.Join(collection.Assign(&b.Maps), collection.Assign(&b.Variables)); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Spec returns the spec of a map, including inner maps.
func (b *Beside) Spec(name string) *ebpf.MapSpec { return b.spec.Maps[name] }

// CopyVariables copies the values of the collection's variables.
func (b *Beside) CopyVariables(c *Collection) error {
	for _, name := range []string{runtimeSection, SharedSection} {
		value, err := c.all[name].LookupBytes(uint32(0))
		if err != nil {
			return fmt.Errorf("read variables: %w", err)
		}
		if err := b.section[name].Put(uint32(0), value); err != nil {
			return fmt.Errorf("write variables: %w", err)
		}
	}
	return nil
}

// Program returns the ingress program for interfaces with, or without (layer3), a link-layer
// header.
func (b *Beside) Program(layer3 bool) (*ebpf.Program, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := programName(layer3, false)
	if p := b.programs[name]; p != nil {
		return p, nil
	}
	p, err := LoadProgram(b.spec, b.all, nil, name)
	if err != nil {
		return nil, fmt.Errorf("load the separate program: %w", err)
	}
	b.programs[name] = p
	return p, nil
}

// Close releases programs and maps. Shared ones stay.
func (b *Beside) Close() error {
	var errs []error
	for _, p := range slices.Collect(maps.Values(b.programs)) {
		errs = append(errs, p.Close())
	}
	for _, m := range b.all {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}
