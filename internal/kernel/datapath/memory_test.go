package datapath

import (
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// TestNoMemory checks that a connection for which the kernel has no memory is not counted as one
// that met a full table. A full map of address pairs simulates the lack of memory.
func TestNoMemory(t *testing.T) {
	t.Parallel()
	o := newOwnOpener(t, "10.0.0.1:80/tcp mode=fullnat endpoints=192.0.2.1:80,192.0.2.2:80")
	small, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.Hash, KeySize: 36, ValueSize: 4, MaxEntries: 1, Flags: unix.BPF_F_NO_PREALLOC,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	if err := o.d.collection.Maps.SnatUsages.Put(uint32(0), small); err != nil {
		t.Fatal(err)
	}
	o.open(0)
	o.open(1)
	drops, err := o.d.Drops()
	if err != nil {
		t.Fatal(err)
	}
	if drops["no-memory"] != 1 || drops["conntrack-full"] != 0 {
		t.Errorf("drops: %d no-memory, %d conntrack-full; want 1 and 0", drops["no-memory"], drops["conntrack-full"])
	}
}
