package loader

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
)

// A start mostly waits for the kernel's verifier. It verifies as many programs at once as there are
// CPUs, and programs that are not needed yet are loaded later.

// MakeMaps makes an object's maps and variables, without its programs.
func MakeMaps(spec *ebpf.CollectionSpec, opts ebpf.CollectionOptions) (*ebpf.Collection, error) {
	alone := *spec
	alone.Programs = nil
	return ebpf.NewCollectionWithOptions(&alone, opts)
}

// RunConcurrently runs functions concurrently, and returns when all have ended. The first one runs
// on the caller's thread, and so in its namespaces.
func RunConcurrently(first func() error, others ...func() error) error {
	var running sync.WaitGroup
	errs := make([]error, len(others))
	for i, f := range others {
		running.Go(func() { errs[i] = f() })
	}
	err := first()
	running.Wait()
	return errors.Join(append(errs, err)...)
}

// LoadPrograms loads all programs of an object whose maps exist, or none.
func LoadPrograms(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map) (map[string]*ebpf.Program, error) {
	var (
		loading sync.WaitGroup
		mu      sync.Mutex
		failed  error
		loaded  = make(map[string]*ebpf.Program, len(spec.Programs))
	)
	for name := range spec.Programs {
		loading.Go(func() {
			p, err := LoadProgram(spec, maps, name)
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

// LoadProgram loads one program of an object whose maps exist.
func LoadProgram(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map, name string) (*ebpf.Program, error) {
	alone := ebpf.CollectionSpec{Maps: spec.Maps, Programs: map[string]*ebpf.ProgramSpec{name: spec.Programs[name]}, Types: spec.Types, ByteOrder: spec.ByteOrder}
	c, err := ebpf.NewCollectionWithOptions(&alone, ebpf.CollectionOptions{MapReplacements: maps, Cache: bpf.KernelTypes()})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.DetachProgram(name), nil
}

// ShareMaps removes maps from an object's spec, except for its own and those that it shares with
// others, which get their size. maps.h declares all maps in each object.
func ShareMaps(spec *ebpf.CollectionSpec, shared map[string]*ebpf.Map, own ...string) {
	for name, m := range spec.Maps {
		if have, ok := shared[name]; ok {
			m.MaxEntries = have.MaxEntries()
		} else if !slices.Contains(own, name) && !internalMap(name) {
			delete(spec.Maps, name)
		}
	}
}

// SharedSection has the variables that the programs at the tc hook and at XDP both use.
const SharedSection = ".data.shared"

// Section is a section of the variables of the programs at the tc hook.
func (c *Collection) Section(name string) *ebpf.Map { return c.all[name] }

// internalMap distinguishes a section of variables (.rodata, .data.x) from a declared map.
func internalMap(name string) bool { return name[0] == '.' }

// LoadTracing loads the program that replaces Program's while tracing is on (bpf/observe/trace.h).
// The caller must close it.
func (c *Collection) LoadTracing(layer3, egress bool) (*ebpf.Program, error) {
	spec, err := bpf.LoadTcTrace()
	if err != nil {
		return nil, fmt.Errorf("read the object of programs that trace: %w", err)
	}
	return LoadTwin(spec, c.all, programName(layer3, egress))
}

// LoadTwin loads a program of an object that was compiled from the same source as another object,
// with that object's maps, variables and constants.
func LoadTwin(spec *ebpf.CollectionSpec, all map[string]*ebpf.Map, name string) (*ebpf.Program, error) {
	ShareMaps(spec, all)
	p, err := LoadProgram(spec, all, name)
	if err != nil {
		return nil, fmt.Errorf("load a program that traces: %w", err)
	}
	return p, nil
}

// Use is the use of a program. Runs and Time are counted while kernel.bpf_stats_enabled is 1.
type Use struct {
	Name         string
	Instructions uint64 // processed by the verifier; 0: unknown
	Runs         uint64
	Time         time.Duration
}

// Uses returns the use of the programs for the tc hooks, by name. Unknown numbers are 0.
func (c *Collection) Uses() []Use {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]Use, 0, len(c.programs))
	for name, p := range c.programs {
		list = append(list, use(name, p))
	}
	slices.SortFunc(list, func(a, b Use) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func use(name string, p *ebpf.Program) Use {
	u := Use{Name: name}
	if info, err := p.Info(); err == nil {
		n, _ := info.VerifiedInstructions()
		u.Instructions = uint64(n)
	}
	if s, err := p.Stats(); err == nil {
		u.Runs, u.Time = s.RunCount, s.Runtime
	}
	return u
}
