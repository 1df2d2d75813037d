package loader

import (
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Some packets have their own programs, which other programs call by a tail call. They are loaded
// with the first service that needs them, so others do not pay for them (docs/adr/0093-sctp.md,
// docs/adr/0098-quic.md).

// tail describes the programs of one kind of packets.
type tail struct {
	packets string // kind of packets, such as SCTP
	read    func() (*ebpf.CollectionSpec, error)
	indexes map[string]uint32                                        // in the map tail_programs, by the name of the calling program
	make    func(*ebpf.CollectionSpec) (map[string]*ebpf.Map, error) // the maps that only these programs have
}

// tails loads the programs of a tail over the maps of a collection or a sandbox. The zero value has
// none. The owner's lock protects it.
type tails struct {
	tail
	all    map[string]*ebpf.Map // maps of the other programs, and their own; nil: no program is wanted
	own    map[string]*ebpf.Map
	handed map[string]bool // names of programs that call tail programs
}

// open makes the maps that only these programs have, unless they exist.
func (t *tails) open(of tail, all map[string]*ebpf.Map) error {
	if t.all != nil {
		return nil
	}
	spec, err := of.read()
	if err != nil {
		return fmt.Errorf("read the object of programs of %s packets: %w", of.packets, err)
	}
	own, err := of.make(spec)
	if err != nil {
		return err
	}
	t.tail, t.own, t.all, t.handed = of, own, maps.Clone(all), map[string]bool{}
	maps.Copy(t.all, own)
	return nil
}

// put loads the program that another program calls, and adds it to the map of tail calls, which
// keeps it loaded.
func (t *tails) put(name string) error {
	index, ok := t.indexes[name]
	if t.all == nil || !ok || t.handed[name] {
		return nil
	}
	p, err := t.load(name)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := t.all["tail_programs"].Put(index, p); err != nil {
		return fmt.Errorf("hand %s packets over: %w", t.packets, err)
	}
	t.handed[name] = true
	return nil
}

func (t *tails) load(name string) (*ebpf.Program, error) {
	spec, err := t.read()
	if err != nil {
		return nil, fmt.Errorf("read the object of programs of %s packets: %w", t.packets, err)
	}
	ShareMaps(spec, t.all)
	p, err := LoadProgram(spec, t.all, name)
	if err != nil {
		return nil, fmt.Errorf("this kernel refuses the programs of %s packets: %w", t.packets, err)
	}
	return p, nil
}

// Rewrite replaces the programs that an Ethernet interface's program calls by copies with other
// instructions, over the same maps, for benchmarks.
func (c *Collection) Rewrite(change func(asm.Instructions) (asm.Instructions, error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := programName(false, false)
	for _, t := range []*tails{&c.sctp, &c.quic, &c.proxy} {
		if t.all == nil {
			continue
		}
		spec, err := t.read()
		if err != nil {
			return err
		}
		ShareMaps(spec, t.all)
		if spec.Programs[name].Instructions, err = change(spec.Programs[name].Instructions); err != nil {
			return err
		}
		p, err := LoadProgram(spec, t.all, name)
		if err == nil {
			err = errors.Join(t.all["tail_programs"].Put(t.indexes[name], p), p.Close())
		}
		if err != nil {
			return fmt.Errorf("rewrite the program of %s packets: %w", t.packets, err)
		}
	}
	return nil
}

func (t *tails) close() error {
	var errs []error
	for _, m := range t.own {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// handle loads the tail programs for all loaded programs, and later for each newly loaded one. It
// may be retried, and costs nothing once it has succeeded.
func (c *Collection) handle(t *tails, of tail) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.all != nil {
		return nil
	}
	if err := t.open(of, c.all); err != nil {
		return err
	}
	for name := range c.programs {
		if err := t.put(name); err != nil {
			err = errors.Join(err, t.close())
			*t = tails{}
			return err
		}
	}
	return nil
}

// removeOld removes the programs of an earlier process.
func (c *Collection) removeOld(of tail) error {
	for _, index := range of.indexes {
		if err := c.Maps.TailPrograms.Delete(index); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove the programs of %s packets: %w", of.packets, err)
		}
	}
	return nil
}

// handle loads the program for interfaces with, or without (layer3), a link-layer header. It costs
// nothing once it has succeeded.
func (s *Sandbox) handle(t *tails, of tail, layer3 bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := t.open(of, s.all); err != nil {
		return err
	}
	return t.put(programName(layer3, false))
}

// filledArray makes an array with this row.
func filledArray(spec *ebpf.MapSpec, row any) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, fmt.Errorf("make the map %s: %w", spec.Name, err)
	}
	if err := m.Put(uint32(0), row); err != nil {
		return nil, errors.Join(fmt.Errorf("write the map %s: %w", spec.Name, err), m.Close())
	}
	return m, nil
}
