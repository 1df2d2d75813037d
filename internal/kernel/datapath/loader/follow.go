package loader

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// runtimeSection has the variables that user space changes while programs run.
const runtimeSection = ".data.runtime"

// Epochs of next hops. An earlier process's programs have their own map of next hops, and
// connections store only the index and the epoch. So two processes must never use the same epoch.
// Connections store 16 bits of it, next_hops 32: the distance is half of the range.
const (
	epochVariable = "hop_generation"
	formerEpoch   = 1<<31 | 1<<15
)

// Followers are variables of an earlier process's programs that follow those of this process.
type Followers struct{ pairs []pair }

// pair is a variable of this process, and the variable of the same name in another process's
// programs.
type pair struct {
	own, other *ebpf.Variable
	ahead      uint32  // difference of the other's value
	last       *uint32 // last written value; nil: none
}

// Follow finds the variables of programs that this process has, too.
func (c *Collection) Follow(programs []*ebpf.Program) (*Followers, error) {
	f := &Followers{}
	seen := map[ebpf.MapID]bool{}
	for _, p := range programs {
		info, err := p.Info()
		if err != nil {
			return nil, fmt.Errorf("read the program to follow: %w", err)
		}
		ids, _ := info.MapIDs()
		for _, id := range ids {
			if seen[id] {
				continue
			}
			seen[id] = true
			others, err := runtimeVariables(id)
			if err != nil {
				return nil, fmt.Errorf("read the variables of the program to follow: %w", err)
			}
			for name, other := range others {
				if own := c.variables[name]; own != nil && own.Size() == 4 && other.Size() == 4 {
					f.pairs = append(f.pairs, pair{own: own, other: other, ahead: ahead(name)})
				}
			}
		}
	}
	return f, nil
}

func ahead(name string) uint32 {
	if name == epochVariable {
		return formerEpoch
	}
	return 0
}

// Write writes values that changed since the last call.
func (f *Followers) Write() error {
	var errs []error
	for i := range f.pairs {
		p := &f.pairs[i]
		var now uint32
		if err := p.own.Get(&now); err != nil || p.last != nil && *p.last == now {
			errs = append(errs, err)
			continue
		}
		if err := p.other.Set(now + p.ahead); err != nil {
			errs = append(errs, err)
			continue
		}
		p.last = &now
	}
	return errors.Join(errs...)
}

// runtimeVariables returns the variables of a map, if it is a section of them.
func runtimeVariables(id ebpf.MapID) (map[string]*ebpf.Variable, error) {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil || info.Name != runtimeSection {
		return nil, err
	}
	section, err := sectionOf(info)
	if err != nil {
		return nil, err
	}
	spec := &ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{runtimeSection: {
			Name: runtimeSection, Type: m.Type(), KeySize: m.KeySize(), ValueSize: m.ValueSize(), MaxEntries: m.MaxEntries(), Flags: m.Flags(),
		}},
		Variables: map[string]*ebpf.VariableSpec{},
	}
	for _, v := range section.Vars {
		if t, ok := v.Type.(*btf.Var); ok {
			spec.Variables[t.Name] = &ebpf.VariableSpec{Name: t.Name, SectionName: runtimeSection, Offset: v.Offset, Type: t}
		}
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{runtimeSection: m}})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Variables, nil
}

// sectionOf returns the layout of a map that is a section of variables.
func sectionOf(info *ebpf.MapInfo) (*btf.Datasec, error) {
	id, ok := info.BTFID()
	if !ok {
		return nil, errors.New("they have no names")
	}
	handle, err := btf.NewHandleFromID(id)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	types, err := handle.Spec(nil)
	if err != nil {
		return nil, err
	}
	var section *btf.Datasec
	err = types.TypeByName(runtimeSection, &section)
	return section, err
}
