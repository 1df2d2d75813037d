package loader

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"

	"loxilb/internal/lb/report"
)

// AuditPins checks whether the maps in use are the pinned ones: otherwise the next daemon would
// start without their content. With repair, it pins them again.
func (c *Collection) AuditPins(repair bool) report.Compared {
	out := report.Compared{Table: "pins"}
	if !c.Pinned() {
		return out
	}
	for name, m := range c.all {
		if internalMap(name) || slices.Contains(scratchMaps(), name) {
			continue
		}
		out.Rows++
		path := filepath.Join(c.MapFolder(), name)
		same, err := isPinned(m, path)
		if err != nil {
			out.Err = errors.Join(out.Err, err)
			continue
		}
		if same {
			continue
		}
		out.Differences = append(out.Differences, report.Difference{
			Table: out.Table, Row: "the map " + name, What: "is not pinned at " + path + ": the next daemon would begin without it",
		})
		if repair {
			out.Err = errors.Join(out.Err, pinAgain(m, path))
		}
	}
	return out
}

func isPinned(m *ebpf.Map, path string) (bool, error) {
	there, err := ebpf.LoadPinnedMap(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open pinned map: %w", err)
	}
	defer there.Close()
	one, err1 := there.Info()
	two, err2 := m.Info()
	if err := errors.Join(err1, err2); err != nil {
		return false, fmt.Errorf("read map: %w", err)
	}
	a, _ := one.ID()
	b, _ := two.ID()
	return a == b, nil
}

func pinAgain(m *ebpf.Map, path string) error {
	again, err := m.Clone() // the library considers m pinned
	if err != nil {
		return fmt.Errorf("pin a map again: %w", err)
	}
	defer again.Close()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove a pin of another map: %w", err)
	}
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), again.Pin(path))
}
