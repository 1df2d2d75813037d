package loader

import (
	"errors"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// A start waits for the kernel's verifier more than for anything else. It works on as many programs
// at once as there are CPUs, and it is spared those that nothing asks for yet.

// MakeMaps makes an object's maps and variables, without its programs.
func MakeMaps(spec *ebpf.CollectionSpec, opts ebpf.CollectionOptions) (*ebpf.Collection, error) {
	alone := *spec
	alone.Programs = nil
	return ebpf.NewCollectionWithOptions(&alone, opts)
}

// SideBySide returns when all are done. The first is done by the caller's thread, and so in its
// namespaces.
func SideBySide(first func() error, others ...func() error) error {
	var running sync.WaitGroup
	errs := make([]error, len(others))
	for i, f := range others {
		running.Go(func() { errs[i] = f() })
	}
	err := first()
	running.Wait()
	return errors.Join(append(errs, err)...)
}

// LoadPrograms loads the programs of an object whose maps are there: all of them, or none.
func LoadPrograms(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map) (map[string]*ebpf.Program, error) {
	var (
		loading sync.WaitGroup
		mu      sync.Mutex
		failed  error
		loaded  = make(map[string]*ebpf.Program, len(spec.Programs))
		types   = btf.NewCache() // the kernel's, read once
	)
	for name := range spec.Programs {
		loading.Go(func() {
			p, err := LoadProgram(spec, maps, types, name)
			mu.Lock()
			defer mu.Unlock()
			loaded[name], failed = p, errors.Join(failed, err)
		})
	}
	loading.Wait()
	if failed != nil {
		for _, p := range loaded {
			p.Close()
		}
		return nil, failed
	}
	return loaded, nil
}

// LoadProgram loads one program of an object whose maps are there; types is a cache of the
// kernel's, or nil.
func LoadProgram(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map, types *btf.Cache, name string) (*ebpf.Program, error) {
	alone := ebpf.CollectionSpec{Maps: spec.Maps, Programs: map[string]*ebpf.ProgramSpec{name: spec.Programs[name]}, Types: spec.Types, ByteOrder: spec.ByteOrder}
	c, err := ebpf.NewCollectionWithOptions(&alone, ebpf.CollectionOptions{MapReplacements: maps, Cache: types})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.DetachProgram(name), nil
}

// ShareMaps leaves an object the maps that it shares with others, in the size that they have, and
// its own. The rest is declared in maps.h, and not used by it.
func ShareMaps(spec *ebpf.CollectionSpec, shared map[string]*ebpf.Map, own ...string) {
	for name, m := range spec.Maps {
		if have, ok := shared[name]; ok {
			m.MaxEntries = have.MaxEntries()
		} else if !slices.Contains(own, name) && !internalMap(name) {
			delete(spec.Maps, name)
		}
	}
}

// SharedSection has the variables that the programs at the tc hook and XDP's change, and both read.
const SharedSection = ".data.shared"

// Section is a section of the variables of the programs at the tc hook.
func (c *Collection) Section(name string) *ebpf.Map { return c.all[name] }

// internalMap tells a section of variables (.rodata, .data.x) from a declared map.
func internalMap(name string) bool { return name[0] == '.' }
