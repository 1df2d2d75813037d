package loader

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/pins"
)

// Pinned reports whether maps and links outlive the process.
func (s *Settings) Pinned() bool { return s.PinDir != "" }

// PinFolder returns a folder below PinDir; empty if nothing is pinned.
func (s *Settings) PinFolder(name string) string {
	if s.PinDir == "" {
		return ""
	}
	return filepath.Join(s.PinDir, name)
}

// MapFolder returns where maps are pinned; empty if they are not.
func (s *Settings) MapFolder() string {
	if s.PinDir == "" {
		return ""
	}
	return pins.Maps(s.PinDir)
}

// preparePins makes the folders and marks the maps to be pinned by name, which also adopts existing
// ones. The connection table keeps its size.
func (c *Collection) preparePins(spec *ebpf.CollectionSpec) (string, error) {
	if err := pins.Prepare(c.PinDir); err != nil {
		return "", err
	}
	if err := c.markPinned(spec); err != nil {
		return "", err
	}
	return c.MapFolder(), c.dropScratch()
}

// dropScratch removes the pins of maps that an earlier version pinned and this one does not.
func (c *Collection) dropScratch() error {
	for _, name := range scratchMaps() {
		if err := os.Remove(filepath.Join(c.MapFolder(), name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the pin of a map that is made again: %w", err)
		}
	}
	return nil
}

// markPinned refuses maps that cannot be adopted before any is made.
func (c *Collection) markPinned(spec *ebpf.CollectionSpec) error {
	for _, m := range persistentMaps(spec) {
		m.Pinning = ebpf.PinByName
	}
	if err := pins.KeepSize(c.PinDir, "connections", spec.Maps["connections"]); err != nil {
		return err
	}
	if err := pins.CheckLayouts(c.PinDir, PinnedByName(spec.Maps)); err != nil {
		return err
	}
	for name, m := range PinnedByName(spec.Maps) {
		if err := compatible(filepath.Join(c.MapFolder(), name), m); err != nil {
			return err
		}
	}
	return nil
}

// persistentMaps returns the maps that outlive a process, if anything is pinned.
func persistentMaps(spec *ebpf.CollectionSpec) map[string]*ebpf.MapSpec {
	list := maps.Clone(spec.Maps)
	maps.DeleteFunc(list, func(name string, _ *ebpf.MapSpec) bool {
		return internalMap(name) || slices.Contains(scratchMaps(), name)
	})
	return list
}

// ABI returns a hash of the pinned maps' layouts: a build with the same hash adopts all of the
// maps.
func ABI() (string, error) {
	spec, err := bpf.LoadTc()
	if err != nil {
		return "", fmt.Errorf("read data path object: %w", err)
	}
	return pins.Hash(persistentMaps(spec)), nil
}

// CheckPins checks whether Open could adopt the pinned maps, and changes nothing.
func CheckPins(s Settings) error {
	if err := s.complete(); err != nil {
		return err
	}
	spec, err := bpf.LoadTc()
	if err != nil {
		return fmt.Errorf("read data path object: %w", err)
	}
	c := &Collection{Settings: s}
	if err := c.Configure(spec); err != nil {
		return err
	}
	err = c.markPinned(spec)
	if errors.Is(err, pins.ErrLayout) {
		return c.explainLoss(err)
	}
	return err
}

// compatible compares the kernel's description of a pinned map, if it exists.
func compatible(path string, spec *ebpf.MapSpec) error {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open pinned map: %w", err)
	}
	defer m.Close()
	if err := spec.Compatible(m); err != nil {
		return pins.Refuse(err)
	}
	return nil
}

// scratchMaps returns the maps whose content belongs to one packet, or to one process. They are not
// pinned: another build may change their layout. Next hops belong to one process, which begins its
// own epoch: connections look them up again, and no index of the former map is used.
func scratchMaps() []string {
	return []string{"icmp_scratches", "packet_scratches", "openings", "quotes", "rule_scratches", "watchers", "watchers_now",
		"untold_counts", "whereabouts", "probe_answers", "ways", "ways_full", "sctp_programs"}
}

// keepPins stores the layouts of the maps in the pin directory, and whether the thread's network
// namespace lives.
func (c *Collection) keepPins(spec *ebpf.CollectionSpec) error {
	if !c.Pinned() {
		return nil
	}
	pinned := PinnedByName(spec.Maps)
	c.sharedCounts = map[string]*ebpf.MapSpec{}
	for _, name := range []string{"endpoint_states", "handshakes"} {
		c.sharedCounts[name] = pinned[name]
	}
	if !c.Fresh {
		var err error
		if pinned, err = pins.WithoutFormer(c.PinDir, pinned); err != nil {
			return err
		}
	}
	return errors.Join(pins.RecordLayouts(c.PinDir, pinned), pins.Witness(c.PinDir))
}

// CountPerCPU records that connections and handshakes are counted per CPU from now on, so builds
// that would not see those counts refuse the pinned maps. A start that fails before it leaves the
// maps to them.
func (c *Collection) CountPerCPU() error {
	if !c.Pinned() {
		return nil
	}
	return pins.RecordLayouts(c.PinDir, c.sharedCounts)
}

// PinnedByName returns an object's maps that are pinned.
func PinnedByName(all map[string]*ebpf.MapSpec) map[string]*ebpf.MapSpec {
	pinned := make(map[string]*ebpf.MapSpec, len(all))
	for name, m := range all {
		if m.Pinning == ebpf.PinByName {
			pinned[name] = m
		}
	}
	return pinned
}
