package pins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// The witness shows whether the network namespace of a pin directory exists: it is a map of devices
// with the namespace's lo. The kernel removes a device from such maps when it is deleted, and lo is
// deleted with its namespace, never before.
//
// The map costs packets nothing and does not keep the namespace alive. Links would be less exact:
// tcx and XDP links may disappear with their interfaces before the namespace does, and a link of lo
// would see its packets.
const (
	witnessPin = "witness"
	loopback   = uint32(1) // the index of lo in every namespace
)

// Witness records the thread's network namespace in the pin directory. The kernel removes the
// record with the namespace.
func Witness(dir string) error {
	path := filepath.Join(dir, witnessPin)
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		if m, err = makeWitness(path); err != nil {
			return fmt.Errorf("make witness of the network namespace: %w", err)
		}
	}
	defer m.Close()
	if err := m.Put(uint32(0), loopback); err != nil {
		return fmt.Errorf("store lo as witness of the network namespace: %w", err)
	}
	return nil
}

func makeWitness(path string) (*ebpf.Map, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "loxilb_witness", Type: ebpf.DevMap, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return nil, err
	}
	if err := m.Pin(path); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// namespaceExists reports whether the namespace of a pin directory exists. It returns
// os.ErrNotExist if the directory has no witness.
func namespaceExists(dir string) (lives bool, err error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, witnessPin), nil)
	if err != nil {
		return false, fmt.Errorf("open witness: %w", err)
	}
	defer m.Close()
	var lo uint32
	err = m.Lookup(uint32(0), &lo)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask witness: %w", err)
	}
	return true, nil
}
