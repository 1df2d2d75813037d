package datapath

import (
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"loxilb/internal/datapath/bpf"
)

// A start waits for the kernel's verifier more than for anything else. It works on as many programs at once as there are
// CPUs, and it is spared those that nothing asks for yet.

// makeMaps makes an object's maps and variables, without its programs.
func makeMaps(spec *ebpf.CollectionSpec, opts ebpf.CollectionOptions) (*ebpf.Collection, error) {
	alone := *spec
	alone.Programs = nil
	return ebpf.NewCollectionWithOptions(&alone, opts)
}

// sideBySide returns when all are done. The first is done by the caller's thread, and so in its namespaces.
func sideBySide(first func() error, others ...func() error) error {
	var running sync.WaitGroup
	errs := make([]error, len(others))
	for i, f := range others {
		running.Go(func() { errs[i] = f() })
	}
	err := first()
	running.Wait()
	return errors.Join(append(errs, err)...)
}

// loadPrograms loads the programs of an object whose maps are there: all of them, or none.
func loadPrograms(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map) (map[string]*ebpf.Program, error) {
	var (
		loading sync.WaitGroup
		mu      sync.Mutex
		failed  error
		loaded  = make(map[string]*ebpf.Program, len(spec.Programs))
		types   = btf.NewCache() // the kernel's, read once
	)
	for name := range spec.Programs {
		loading.Go(func() {
			p, err := loadProgram(spec, maps, types, name)
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

func loadProgram(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map, types *btf.Cache, name string) (*ebpf.Program, error) {
	alone := ebpf.CollectionSpec{Maps: spec.Maps, Programs: map[string]*ebpf.ProgramSpec{name: spec.Programs[name]}, Types: spec.Types, ByteOrder: spec.ByteOrder}
	c, err := ebpf.NewCollectionWithOptions(&alone, ebpf.CollectionOptions{MapReplacements: maps, Cache: types})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.DetachProgram(name), nil
}

// makeMaps makes those of the object for the tc hooks.
func (d *Datapath) makeMaps(spec *ebpf.CollectionSpec, opts ebpf.CollectionOptions) error {
	made, err := makeMaps(spec, opts)
	if err != nil {
		return err
	}
	d.maps = maps.Clone(made.Maps)
	return errors.Join(made.Assign(&d.obj.TcMaps), made.Assign(&d.obj.TcVariables))
}

// loadEther loads the program of interfaces with a link-layer header.
func (d *Datapath) loadEther(spec *ebpf.CollectionSpec, types *btf.Cache) (err error) {
	d.obj.LoxilbEther, err = loadProgram(spec, d.maps, types, "loxilb_ether")
	if err != nil {
		return fmt.Errorf("load data path: %w", err)
	}
	return nil
}

// closeSections closes those of d.maps that d.obj does not know.
func (d *Datapath) closeSections() error {
	var errs []error
	for name, m := range d.maps {
		if internalMap(name) {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}

// program is the one for an interface's hook, loaded when it is first asked for. To be called with d.mu locked.
func (d *Datapath) program(i Interface, at side) (*ebpf.Program, error) {
	name, p := "loxilb_ether", &d.obj.LoxilbEther
	switch {
	case at == leaving && i.Layer3:
		name, p = "loxilb_layer3_out", &d.obj.LoxilbLayer3Out
	case at == leaving:
		name, p = "loxilb_ether_out", &d.obj.LoxilbEtherOut
	case i.Layer3:
		name, p = "loxilb_layer3", &d.obj.LoxilbLayer3
	}
	if *p != nil {
		return *p, nil
	}
	loaded, err := d.loadLater(name)
	*p = loaded
	return loaded, err
}

// loadLater reads the object anew: to keep what was read of it would take megabytes, and few machines ask for it.
func (d *Datapath) loadLater(name string) (*ebpf.Program, error) {
	spec, err := bpf.LoadTc()
	if err != nil {
		return nil, fmt.Errorf("read data path object: %w", err)
	}
	shareMaps(spec, d.maps)
	loaded, err := loadProgram(spec, d.maps, nil, name)
	if err != nil {
		return nil, fmt.Errorf("load data path: %w", err)
	}
	return loaded, nil
}
