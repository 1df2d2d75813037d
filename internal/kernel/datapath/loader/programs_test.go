package loader

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/pins"
)

// TestProgramsOnDemand checks that a start loads the one program that every machine needs, and that
// each other program is loaded once, when an interface first needs it, with the same maps, also if
// those were pinned.
func TestProgramsOnDemand(t *testing.T) {
	t.Parallel()
	settings := Settings{Connections: 1024, PinDir: pinDir(t)}
	for range 2 {
		c, err := Open(settings)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.LoadFirst(); err != nil {
			t.Fatal(err)
		}
		if len(c.programs) != 1 || c.programs["loxilb_ether"] == nil {
			t.Errorf("the first programs are %v", c.programs)
		}
		for _, egress := range []bool{false, true} {
			for _, layer3 := range []bool{false, true} {
				askTwice(t, c, layer3, egress)
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// pinDir returns a folder of the test in the BPF file system.
func pinDir(t *testing.T) string {
	t.Helper()
	root, err := pins.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(root, "loxilb-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// askTwice requests the program of a hook twice, and checks that its maps are those of the
// collection.
func askTwice(t *testing.T, c *Collection, layer3, egress bool) {
	t.Helper()
	first, err := c.Program(layer3, egress)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.Program(layer3, egress); err != nil || again != first {
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
	known := mapIDs(t, c.all)
	for _, id := range used {
		if !slices.Contains(known, id) {
			t.Errorf("%v works on map %d, which is not the collection's", first, id)
		}
	}
}

// TestTableKeepsItsSize checks that requesting another size keeps existing connections, and is
// logged, even if the number of groups would be the same.
func TestTableKeepsItsSize(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	settings := Settings{Connections: 1024, PinDir: pinDir(t), Log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, asked := range []int{1024, 4096, 1025} {
		settings.Connections = asked
		log.Reset()
		c, err := Open(settings)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := c.Conntrack.Max(); n != 2*1024 || err != nil {
			t.Errorf("%d asked for: the table has %d entries", asked, n)
		}
		said := strings.Contains(log.String(), fmt.Sprintf("connections=1024 asked=%d\n", asked))
		if said != (asked != 1024) {
			t.Errorf("%d asked for: the log says %q", asked, log.String())
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
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

// TestLoadProgramsFails checks that when the kernel refuses one program, the others are closed, and
// the error names it.
//
// Not parallel: it counts the process's programs.
func TestLoadProgramsFails(t *testing.T) {
	spec, err := bpf.LoadDecap()
	if err != nil {
		t.Fatal(err)
	}
	made, err := MakeMaps(spec, ebpf.CollectionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	spec.Programs["loxilb_decap_layer3"].Instructions = asm.Instructions{asm.Return()} // without a return value, which the verifier refuses
	before := openPrograms(t)
	loaded, err := LoadPrograms(spec, made.Maps)
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
