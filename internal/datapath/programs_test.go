package datapath

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"loxilb/internal/datapath/bpf"
)

// TestProgramsOnDemand: a start loads the one program that every machine needs; each other is loaded once, when an interface
// first asks for it, and works on the same maps, those that were pinned too.
func TestProgramsOnDemand(t *testing.T) {
	t.Parallel()
	d, err := Load(Config{Connections: 1024, PinDir: pinDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if d.obj.LoxilbEther == nil || d.obj.LoxilbEtherOut != nil || d.obj.LoxilbLayer3 != nil || d.obj.LoxilbLayer3Out != nil {
			t.Errorf("after Load there are %+v", d.obj.TcPrograms)
		}
		for _, at := range []side{arriving, leaving} {
			for _, layer3 := range []bool{false, true} {
				askTwice(t, d, Interface{Layer3: layer3}, at)
			}
		}
		d = reload(t, d)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// askTwice asks for an interface's program, and looks whether its maps are the data path's.
func askTwice(t *testing.T, d *Datapath, i Interface, at side) {
	t.Helper()
	first, err := d.program(i, at)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := d.program(i, at); err != nil || again != first {
		t.Errorf("%v: loaded again, %v", first, err)
	}
	info, err := first.Info()
	if err != nil {
		t.Fatal(err)
	}
	used, ok := info.MapIDs()
	if !ok || len(used) == 0 {
		t.Fatalf("%v: the kernel names none of its maps", first)
	}
	known := mapIDs(t, d.maps)
	for _, id := range used {
		if !slices.Contains(known, id) {
			t.Errorf("%v works on map %d, which is not the data path's", first, id)
		}
	}
}

func mapIDs(t *testing.T, maps map[string]*ebpf.Map) (ids []ebpf.MapID) {
	t.Helper()
	for _, m := range maps {
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		id, _ := info.ID()
		ids = append(ids, id)
	}
	return ids
}

// TestLoadProgramsFails: when the kernel refuses one program, the others are given up, and the error names the one.
//
// Not parallel: it counts the process's programs.
func TestLoadProgramsFails(t *testing.T) {
	spec, err := bpf.LoadDecap()
	if err != nil {
		t.Fatal(err)
	}
	made, err := makeMaps(spec, ebpf.CollectionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	spec.Programs["loxilb_decap_layer3"].Instructions = asm.Instructions{asm.Return()} // of what, the verifier asks
	before := openPrograms(t)
	loaded, err := loadPrograms(spec, made.Maps)
	if err == nil || loaded != nil || !strings.Contains(err.Error(), "loxilb_decap_layer3") || strings.Contains(err.Error(), "loxilb_decap_ether") {
		t.Errorf("loaded %v, error %v", loaded, err)
	}
	if n := openPrograms(t); n != before {
		t.Errorf("%d programs are open, before there were %d", n, before)
	}
}

func openPrograms(t *testing.T) (n int) {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.Contains(to, "bpf-prog") {
			n++
		}
	}
	return n
}
