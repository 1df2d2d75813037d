package pins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// checkPlace refuses a directory outside BPF file systems. If it does not exist, its nearest
// existing parent counts.
func checkPlace(dir string) error {
	at := filepath.Clean(dir)
	for {
		if _, err := os.Stat(at); !errors.Is(err, os.ErrNotExist) || at == filepath.Dir(at) {
			break
		}
		at = filepath.Dir(at)
	}
	if !isBPFFS(at) {
		return fmt.Errorf("pin directory %q is not in a BPF file system: name one below %s", dir, usualBPFFS)
	}
	return nil
}

// checkUnshared refuses a directory outside BPF file systems, or with files that loxilb does not
// make: removing it would remove them.
func checkUnshared(dir string) ([]string, error) {
	if err := checkPlace(dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list pin directory: %w", err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		if names[i] = e.Name(); !ownNames(names[i : i+1]) {
			return nil, fmt.Errorf("pin directory %q holds %q, which loxilb did not make: choose a separate directory", dir, names[i])
		}
	}
	return names, nil
}

// CheckOwned refuses a directory that loxilb did not make. It accepts a missing or empty directory.
func CheckOwned(dir string) error {
	names, err := checkUnshared(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	has := func(name string) bool { return slices.Contains(names, name) }
	// Other programs may have folders "maps" or "links", but not all of these.
	if len(names) == 0 || has(witnessPin) || has(layoutsPin) || has(Ingress) && has(Egress) {
		return nil
	}
	return fmt.Errorf("pin directory %q was not made by loxilb: it has no witness of a network namespace", dir)
}
