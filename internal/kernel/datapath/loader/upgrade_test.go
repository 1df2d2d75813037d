package loader

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/pins"
	"loxilb/internal/kernel/datapath/rows"
)

// TestUpgradeOfScratch checks an upgrade from a version with another layout of its pinned next hops
// or packet buffer.
//
// P29
func TestUpgradeOfScratch(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ways", "packet_scratches"} {
		settings := Settings{Connections: 1024, PinDir: pinDir(t)}
		openOnce(t, settings)
		spec := &ebpf.MapSpec{Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: 128, MaxEntries: 7}
		m, err := ebpf.NewMap(spec)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		path := filepath.Join(pins.Maps(settings.PinDir), name)
		if err := errors.Join(m.Pin(path), pins.RecordLayouts(settings.PinDir, map[string]*ebpf.MapSpec{name: spec})); err != nil {
			t.Fatal(err)
		}
		if err := CheckPins(settings); err != nil {
			t.Errorf("--check-upgrade: %v", err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("--check-upgrade changes something: %v", err)
		}
		openOnce(t, settings)
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the pin of %s is still there: %v", name, err)
		}
	}
}

// TestABI checks that the ABI of --version, which uses no kernel, is that of a daemon with any
// settings, with and without pins.
func TestABI(t *testing.T) {
	t.Parallel()
	want, err := ABI()
	if err != nil {
		t.Fatal(err)
	}
	for _, settings := range []Settings{{Connections: 1024}, {Connections: 4096, PinDir: pinDir(t)}} {
		c, err := Open(settings)
		if err != nil {
			t.Fatal(err)
		}
		if c.ABI != want {
			t.Errorf("%+v: %s, want %s", settings, c.ABI, want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSizesOfAttached checks that the maps of attachments of services, sources and interfaces are
// adopted from versions with the same sizes, which the kernel compares.
func TestSizesOfAttached(t *testing.T) {
	t.Parallel()
	spec, err := bpf.LoadTc()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"attached_services", "attached_sources", "attached_ports"} {
		if n := spec.Maps[name].MaxEntries; n != 8192 {
			t.Errorf("%s has room for %d, 8192 have been pinned", name, n)
		}
	}
}

// TestFormerEpochs checks that restored programs of a former version have their own map of next
// hops, and never use an epoch of this process.
func TestFormerEpochs(t *testing.T) {
	t.Parallel()
	var all [2]*Collection
	for i := range all {
		c, err := Open(Settings{Connections: 1024})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if err := c.LoadFirst(); err != nil {
			t.Fatal(err)
		}
		all[i] = c
	}
	former, own := all[0], all[1]
	p, err := former.Program(false, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(own.Variables.HopGeneration.Set(uint32(7)), own.Variables.NeighbourGeneration.Set(uint32(9))); err != nil {
		t.Fatal(err)
	}
	f, err := own.Follow([]*ebpf.Program{p})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Write(); err != nil {
		t.Fatal(err)
	}
	var routes, neighbours uint32
	if err := errors.Join(former.Variables.HopGeneration.Get(&routes), former.Variables.NeighbourGeneration.Get(&neighbours)); err != nil {
		t.Fatal(err)
	}
	if uint16(routes-7) != 1<<15 || routes-7 < 1<<31 || neighbours != 9 {
		t.Errorf("generations of routes %#x, of neighbours %d", routes, neighbours)
	}
}

// TestFormerTableStates checks that a connection table of a version without second homes is
// adopted, and that its layout stays, so that version can adopt it again.
func TestFormerTableStates(t *testing.T) {
	t.Parallel()
	settings := Settings{Connections: 1024, PinDir: pinDir(t)}
	openOnce(t, settings)
	spec, err := bpf.LoadTc()
	if err != nil {
		t.Fatal(err)
	}
	former := map[string]*ebpf.MapSpec{"table_states": withoutHomes(spec.Maps["table_states"])}
	if err := pins.RecordLayouts(settings.PinDir, former); err != nil {
		t.Fatal(err)
	}
	if err := CheckPins(settings); err != nil {
		t.Errorf("--check-upgrade: %v", err)
	}
	openOnce(t, settings)
	if err := pins.CheckLayouts(settings.PinDir, former); err != nil {
		t.Errorf("the former version: %v", err)
	}
}

// withoutHomes returns the spec of table_states before keys had two homes.
func withoutHomes(spec *ebpf.MapSpec) *ebpf.MapSpec {
	spec = spec.Copy()
	state := btf.Copy(btf.UnderlyingType(spec.Value)).(*btf.Struct)
	members := state.Members[:0:0]
	for _, m := range state.Members {
		switch m.Name {
		case "has_homes":
			m.Name = "pad"
		case "by_client", "is_swept", "was_swept", "moved_back":
			continue
		case "pad2":
			padding := *btf.UnderlyingType(m.Type).(*btf.Array)
			padding.Nelems += 3
			m.Type, m.Offset = &padding, m.Offset-192
		}
		members = append(members, m)
	}
	state.Members, spec.Value = members, state
	return spec
}

// TestFormerCounts checks that counts of versions without counts per CPU are adopted, and that such
// a version refuses to start once the programs are in use, since it would miss the counts of the
// CPUs. A start that fails before leaves the maps to it.
func TestFormerCounts(t *testing.T) {
	t.Parallel()
	spec, err := bpf.LoadTc()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("connections", func(t *testing.T) {
		t.Parallel()
		want := bpf.TcEndpointState{Connections: 7, Active: 2, Tracked: 3}
		checkFormer(t, "connection_counts", withFirst("pad", "endpoint_states", spec),
			func(c *Collection) error {
				if err := rows.Grow(1, c.Endpoints, c.EndpointStates.Shared); err != nil {
					return err
				}
				return c.EndpointStates.Shared.Put(5, want)
			},
			func(c *Collection) error {
				var got bpf.TcEndpointState
				if err := c.EndpointStates.Lookup(5, &got); err != nil || got != want {
					return fmt.Errorf("counts %+v, want %+v: %w", got, want, err)
				}
				return nil
			})
	})
	t.Run("handshakes", func(t *testing.T) {
		t.Parallel()
		checkFormer(t, "handshake_steps", withFirst("opened", "handshakes", spec),
			func(c *Collection) error { return rows.Grow(1, c.Endpoints, c.Handshakes.Shared) },
			func(c *Collection) error {
				var steps []bpf.TcHandshakeProgress
				return c.Handshakes.PerCPU.Lookup(5, &steps)
			})
	})
}

// checkFormer checks an upgrade from a version without a map of counts per CPU, whose shared counts
// have another layout. put writes what it has counted; check is run after the upgrade.
func checkFormer(t *testing.T, perCPU string, former map[string]*ebpf.MapSpec, put, check func(*Collection) error) {
	settings := Settings{Connections: 1024, PinDir: pinDir(t)}
	c, err := Open(settings)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(put(c), c.Close(), os.Remove(filepath.Join(pins.Maps(settings.PinDir), perCPU)), pins.RecordLayouts(settings.PinDir, former)); err != nil {
		t.Fatal(err)
	}
	if err := CheckPins(settings); err != nil {
		t.Errorf("--check-upgrade: %v", err)
	}
	if c, err = Open(settings); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := check(c); err != nil {
		t.Error(err)
	}
	if err := pins.CheckLayouts(settings.PinDir, former); err != nil {
		t.Errorf("the former version, after a start that failed: %v", err)
	}
	if err := c.CountPerCPU(); err != nil {
		t.Fatal(err)
	}
	if err := pins.CheckLayouts(settings.PinDir, former); !errors.Is(err, pins.ErrLayout) {
		t.Errorf("the former version: %v", err)
	}
}

// withFirst returns the layout of a map of a version in which the first member of its rows had
// another name.
func withFirst(member, name string, spec *ebpf.CollectionSpec) map[string]*ebpf.MapSpec {
	former := spec.Maps[name].Copy()
	row := btf.Copy(btf.UnderlyingType(former.InnerMap.Value)).(*btf.Struct)
	row.Members[0].Name = member
	former.InnerMap.Value = row
	return map[string]*ebpf.MapSpec{name: former}
}

// openOnce opens a collection, and closes it.
func openOnce(t *testing.T, settings Settings) {
	t.Helper()
	c, err := Open(settings)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}
