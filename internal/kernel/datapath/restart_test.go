package datapath

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/pins"
	"loxilb/test/dptest"
)

// TestAnotherLayout checks that maps of a version with another layout are refused, with a sentence
// that says how to fix it, and not changed.
//
// V192 maps of another layout are refused by name
// P4 Maps of a version with another layout are refused and left unchanged; the error names what
// would be lost
func TestAnotherLayout(t *testing.T) {
	dir := dptest.PinDir(t)
	if err := os.MkdirAll(filepath.Join(dir, "maps"), 0o700); err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "services", Type: ebpf.Hash, KeySize: 20, ValueSize: 16, MaxEntries: 65536, Flags: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	path := filepath.Join(dir, "maps", "services")
	if err := m.Pin(path); err != nil {
		t.Fatal(err)
	}
	_, err = Load(Config{Connections: 1024, PinDir: dir})
	if !errors.Is(err, pins.ErrLayout) || !strings.Contains(err.Error(), "; --end-connections starts without them: all tracked connections end, all counters begin") {
		t.Errorf(`got %v, want the error pins.ErrLayout, "; --end-connections starts without them: all tracked connections end, `+
			`all counters begin" in the error`,
			err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if err := RemovePins(dir); err != nil {
		t.Fatal(err)
	}
	d, err := Load(Config{Connections: 1024, PinDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestChangedLayout checks that a map of the same size whose fields have moved is refused by its
// name, and not changed. Pins of a build without layouts are adopted.
//
// P4
func TestChangedLayout(t *testing.T) {
	cfg := Config{Connections: 1024, PinDir: dptest.PinDir(t)}
	for range 2 { // the second start has the same layouts
		d, err := Load(cfg)
		if err != nil {
			t.Fatal(err)
		}
		dptest.Fill(t, d.collection, 10, 0)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	changeLayout(t, cfg.PinDir)
	_, err := Load(cfg)
	const want = "the pinned maps have another layout: keys or values of endpoints were laid out differently by the build that made them; " +
		"--end-connections starts without them: 10 tracked connections end, all counters begin at 0, and known clients and their endpoints are " +
		"forgotten, but services stay; or start the version that made them"
	if !errors.Is(err, pins.ErrLayout) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want the error pins.ErrLayout with %q", err, want)
	}

	if err := os.Remove(filepath.Join(cfg.PinDir, "layouts")); err != nil {
		t.Fatal(err)
	}
	d, err := Load(cfg)
	if err != nil {
		t.Fatalf("pins of a build that keeps no layouts: %v", err)
	}
	defer d.Close()
	if len(dptest.Connections(t, d.collection)) == 0 {
		t.Error("the connections are gone")
	}
}

// TestInterruptedStart checks a start that was killed before it created the connection table, and
// so left empty maps. The next start uses them, also with another table size.
//
// P2
func TestInterruptedStart(t *testing.T) {
	t.Parallel()
	for _, connections := range []int{1024, 65536} {
		cfg := Config{Connections: 1024, PinDir: dptest.PinDir(t)}
		before, err := Load(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}
		state, err := ebpf.LoadPinnedMap(filepath.Join(pins.Maps(cfg.PinDir), "table_states"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(state.Put(uint32(0), bpf.TcTableState{}), state.Close()); err != nil {
			t.Fatal(err)
		}
		cfg.Connections = connections
		d, err := Load(cfg)
		if err != nil {
			t.Fatal(err)
		}
		dptest.Fill(t, d.collection, 1024, 0)
		if n := len(dptest.Connections(t, d.collection)); n != 2*1024 {
			t.Errorf("%d entries, want %d", n, 2*1024)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// changeLayout makes the pinned endpoints those of a build in which two of their fields are
// swapped.
func changeLayout(t *testing.T, dir string) {
	t.Helper()
	spec, err := bpf.LoadTc()
	if err != nil {
		t.Fatal(err)
	}
	changed := spec.Maps["endpoints"]
	fields := changed.InnerMap.Value.(*btf.Struct).Members
	fields[0].Name, fields[1].Name = fields[1].Name, fields[0].Name
	if err := pins.RecordLayouts(dir, map[string]*ebpf.MapSpec{"endpoints": changed}); err != nil {
		t.Fatal(err)
	}
}

// TestEndConnections checks that a start with --end-connections drops maps that cannot be adopted,
// and keeps the others.
func TestEndConnections(t *testing.T) {
	t.Parallel()
	cfg := Config{Connections: 1024, PinDir: dptest.PinDir(t), EndConnections: true}
	lock, err := pins.Acquire(cfg.PinDir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	for i, want := range []int{0, 20, 0} {
		d, err := Load(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(dptest.Connections(t, d.collection)); n != want {
			t.Errorf("start %d: %d entries, want %d", i, n, want)
		}
		dptest.Fill(t, d.collection, 10, 0)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			changeLayout(t, cfg.PinDir)
		}
	}
	if lock.Lost() {
		t.Error("the pin directory was replaced")
	}
}
