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

// A Sandbox is a second instance of a collection's program. It shares some of the collection's maps
// and has its own copies of the others, which no packet of the network uses.
type Sandbox struct {
	Maps      bpf.TcMaps
	Variables bpf.TcVariables

	section map[string]*ebpf.Map // of variables
	all     map[string]*ebpf.Map
	spec    *ebpf.CollectionSpec

	mu       sync.Mutex
	programs map[string]*ebpf.Program
	sctp     tails
	quic     tails
	proxy    tails
}

// NewSandbox returns the maps of a Sandbox, except for the shared ones. rows and inner are the
// sizes of some of these maps, or of the maps in them. Programs are loaded on demand.
func (c *Collection) NewSandbox(shared []string, rows, inner map[string]uint32) (*Sandbox, error) {
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
			return nil, fmt.Errorf("unknown map %s", name)
		}
		have[name], spec.Maps[name].MaxEntries = m, m.MaxEntries()
	}
	b := &Sandbox{spec: spec, programs: map[string]*ebpf.Program{}, section: map[string]*ebpf.Map{}}
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
func (s *Sandbox) Spec(name string) *ebpf.MapSpec { return s.spec.Maps[name] }

// CopyVariables copies the values of the collection's variables.
func (s *Sandbox) CopyVariables(c *Collection) error {
	for _, name := range []string{runtimeSection, SharedSection} {
		value, err := c.all[name].LookupBytes(uint32(0))
		if err != nil {
			return fmt.Errorf("read variables: %w", err)
		}
		if err := s.section[name].Put(uint32(0), value); err != nil {
			return fmt.Errorf("write variables: %w", err)
		}
	}
	return nil
}

// Program returns the ingress program for interfaces with, or without (layer3), a link-layer
// header.
func (s *Sandbox) Program(layer3 bool) (*ebpf.Program, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := programName(layer3, false)
	if p := s.programs[name]; p != nil {
		return p, nil
	}
	p, err := LoadProgram(s.spec, s.all, name)
	if err != nil {
		return nil, fmt.Errorf("load the separate program: %w", err)
	}
	s.programs[name] = p
	return p, nil
}

// Close releases programs and maps. Shared ones stay.
func (s *Sandbox) Close() error {
	errs := []error{s.sctp.close(), s.quic.close(), s.proxy.close()}
	for _, p := range slices.Collect(maps.Values(s.programs)) {
		errs = append(errs, p.Close())
	}
	for _, m := range s.all {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}
