package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Below the pin folder: maps/NAME, links/INTERFACE-INDEX (and leaving/, xdp-native/, xdp-generic/), sockets/PROGRAM.
func (d *Datapath) mapPins() string         { return filepath.Join(d.cfg.PinDir, "maps") }
func (d *Datapath) linkPins(at side) string { return filepath.Join(d.cfg.PinDir, at.pins()) }

// preparePins makes the folders and marks the maps to be pinned by name, which also adopts those that are
// there. A table that exists keeps its size: resizing would mean to lose its connections.
func (d *Datapath) preparePins(spec *ebpf.CollectionSpec) (string, error) {
	for _, dir := range []string{d.mapPins(), d.linkPins(arriving), d.linkPins(leaving)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", fmt.Errorf("make pin folder: %w", err)
		}
	}
	pinned, err := os.ReadDir(d.mapPins())
	if err != nil {
		return "", fmt.Errorf("list pinned maps: %w", err)
	}
	d.fresh = len(pinned) == 0
	for name, m := range spec.Maps {
		if !internalMap(name) {
			m.Pinning = ebpf.PinByName
		}
	}
	for _, table := range []string{"connections", "persists"} {
		if err := d.keepSize(spec.Maps[table], table); err != nil {
			return "", err
		}
	}
	return d.mapPins(), nil
}

// keepSize gives a table the size that it has when it is pinned already.
func (d *Datapath) keepSize(spec *ebpf.MapSpec, table string) error {
	pinned, err := ebpf.LoadPinnedMap(filepath.Join(d.mapPins(), table), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open pinned map %s: %w", table, err)
	}
	defer pinned.Close()
	if pinned.MaxEntries() != spec.MaxEntries {
		d.log.Warn("a table keeps its size, since it holds connections; `loxilb --detach` gives it up",
			"table", table, "entries", pinned.MaxEntries(), "asked", spec.MaxEntries)
		spec.MaxEntries = pinned.MaxEntries()
	}
	return nil
}

// RemovePins takes everything away that an earlier Load with this pin folder left attached or pinned: packets
// go to the kernel again, connections are forgotten.
func RemovePins(dir string) error {
	if err := detachClsactAll(); err != nil {
		return err
	}
	for _, links := range []string{arriving.pins(), leaving.pins(), XDPNative.pins(), XDPGeneric.pins(), socketPins} {
		if err := removeLinks(filepath.Join(dir, links)); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove pins: %w", err)
	}
	return nil
}

// removeLinks detaches the links that are pinned in a folder, and removes it.
func removeLinks(dir string) error {
	links, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list pinned links: %w", err)
	}
	for _, e := range links {
		path := filepath.Join(dir, e.Name())
		if l, err := link.LoadPinnedLink(path, nil); err == nil {
			err = errors.Join(l.Detach(), l.Close())
			if err != nil {
				return fmt.Errorf("detach %s: %w", path, err)
			}
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove pinned links: %w", err)
	}
	return nil
}

// CollectPins removes what daemons in network namespaces that no longer exist have left beside dir: folders
// all of whose links have lost their interface.
func CollectPins(dir string) error {
	siblings, err := os.ReadDir(filepath.Dir(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list pin folders: %w", err)
	}
	var errs []error
	for _, e := range siblings {
		path := filepath.Join(filepath.Dir(dir), e.Name())
		if path != dir && abandoned(path) {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}

// abandoned: it has links, and none is attached to an interface any more.
func abandoned(dir string) bool {
	links, err := os.ReadDir(filepath.Join(dir, "links"))
	if err != nil || len(links) == 0 {
		return false
	}
	for _, e := range links {
		l, err := link.LoadPinnedLink(filepath.Join(dir, "links", e.Name()), nil)
		if err != nil {
			return false
		}
		index, err := linkInterface(l)
		l.Close()
		if err != nil || index != 0 {
			return false
		}
	}
	return true
}

// linkInterface is the index of the interface that a tcx or XDP link is attached to, 0 once that is gone.
func linkInterface(l link.Link) (uint32, error) {
	info, err := l.Info()
	if err != nil {
		return 0, fmt.Errorf("read link: %w", err)
	}
	if tcx := info.TCX(); tcx != nil {
		return tcx.Ifindex, nil
	}
	if xdp := info.XDP(); xdp != nil {
		return xdp.Ifindex, nil
	}
	return 0, fmt.Errorf("read link: neither tcx nor XDP but %v", info.Type)
}
