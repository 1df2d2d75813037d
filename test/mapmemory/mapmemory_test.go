package mapmemory

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
)

// TestOf checks that maps in an array of maps count once, whether they are open or not.
func TestOf(t *testing.T) {
	const rows, size = 1024, 64
	inner := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: size, MaxEntries: rows}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 4, InnerMap: inner})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = outer.Close() }()
	before := OfProcess(os.Getpid())
	for i := range uint32(2) {
		m, err := ebpf.NewMap(inner)
		if err != nil {
			t.Fatal(err)
		}
		if err := outer.Put(i, m); err != nil {
			t.Fatal(err)
		}
		if i == 0 { // the other map stays open
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		defer func() { _ = m.Close() }()
	}
	if grown := OfProcess(os.Getpid()) - before; grown < 2*rows*size || grown >= 3*rows*size {
		t.Errorf("two maps of %d bytes count as %d", rows*size, grown)
	}
}
