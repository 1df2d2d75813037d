package datapath

import (
	"errors"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"

	"loxilb/internal/datapath/pins"
)

func (d *Datapath) mapPins() string         { return pins.Maps(d.cfg.PinDir) }
func (d *Datapath) linkPins(at side) string { return filepath.Join(d.cfg.PinDir, at.pins()) }

// preparePins makes the folders and marks the maps to be pinned by name, which also adopts those that are
// there. A table that exists keeps its size.
func (d *Datapath) preparePins(spec *ebpf.CollectionSpec) (string, error) {
	var err error
	if d.fresh, err = pins.Prepare(d.cfg.PinDir); err != nil {
		return "", err
	}
	for name, m := range spec.Maps {
		if !internalMap(name) && !slices.Contains(scratchMaps(), name) {
			m.Pinning = ebpf.PinByName
		}
	}
	for _, table := range []string{"connections", "persists"} {
		if err := pins.KeepSize(d.cfg.PinDir, table, spec.Maps[table], d.log); err != nil {
			return "", err
		}
	}
	return d.mapPins(), pins.CheckLayouts(d.cfg.PinDir, pinnedByName(spec.Maps))
}

// scratchMaps are those whose content is of one packet. They are not pinned: another build may lay them out anew.
func scratchMaps() []string { return []string{"icmp_scratches", "openings"} }

// keepPins has the pin directory know the layouts of its maps, and whether the thread's network namespace lives.
func (d *Datapath) keepPins(spec *ebpf.CollectionSpec) error {
	if d.cfg.PinDir == "" {
		return nil
	}
	return errors.Join(pins.RecordLayouts(d.cfg.PinDir, pinnedByName(spec.Maps)), pins.Witness(d.cfg.PinDir))
}

func pinnedByName(all map[string]*ebpf.MapSpec) map[string]*ebpf.MapSpec {
	pinned := make(map[string]*ebpf.MapSpec, len(all))
	for name, m := range all {
		if m.Pinning == ebpf.PinByName {
			pinned[name] = m
		}
	}
	return pinned
}

// RemovePins takes everything away that an earlier Load with this pin folder left attached or pinned: packets
// go to the kernel again, connections are forgotten.
func RemovePins(dir string) error {
	if err := detachClsactAll(); err != nil {
		return err
	}
	return pins.Remove(dir)
}
