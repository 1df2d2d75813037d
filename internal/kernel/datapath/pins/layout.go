package pins

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// ErrLayout reports that maps pinned by another build cannot be adopted.
var ErrLayout = errors.New("the pinned maps have another layout")

// Refuse wraps the reason why pinned maps cannot be adopted in ErrLayout.
func Refuse(reason error) error { return fmt.Errorf("%w: %w", ErrLayout, reason) }

// The layout of each pinned map is stored as a hash, in a map pinned with them: the kernel compares
// only sizes, which stay the same when two fields change places. There is one hash per map, so that
// an added or removed map affects no other.
const (
	layoutsPin = "layouts"
	layoutsMax = 1024
)

type layoutName [64]byte

type layoutHash [sha256.Size]byte

// CheckLayouts returns ErrLayout if a pinned map has another layout than its spec, and names the
// maps. A pinned map without a stored layout is from a build that stored none: only sizes are
// compared.
func CheckLayouts(dir string, specs map[string]*ebpf.MapSpec) error {
	known, err := openLayouts(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer known.Close()
	var other []string
	for name, spec := range specs {
		if _, err := os.Stat(filepath.Join(Maps(dir), name)); err != nil {
			continue
		}
		var was layoutHash
		err := known.Lookup(keyOf(name), &was)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("read layout of pinned map %s: %w", name, err)
		}
		if err == nil && was != hashOf(spec) && !isFormer(name, was) && !hasTotalCounts(name, was) {
			other = append(other, name)
		}
	}
	if len(other) == 0 {
		return nil
	}
	slices.Sort(other)
	return Refuse(fmt.Errorf("keys or values of %s were laid out differently by the build that made them", strings.Join(other, ", ")))
}

// isFormer reports whether a map has a former layout that this build can read: new fields were
// padding, and zero means that they are absent.
func isFormer(name string, layout layoutHash) bool {
	// without two homes for each key (table_state.has_homes)
	const tableStates = "9e7592a93cb33a2948c79e16137655baba3d21819dd387de9645d11236974038"
	return name == "table_states" && hex.EncodeToString(layout[:]) == tableStates
}

// hasTotalCounts reports whether a map has the counts of a build without counts per CPU. This build
// adds them to its own counts. The former build cannot adopt the map again: it would not see the
// counts per CPU.
func hasTotalCounts(name string, layout layoutHash) bool {
	switch hex.EncodeToString(layout[:]) {
	case "9dea7e51ae858a6e0a6a92abdbefe91c538f6063a2867ee56948268698226dab":
		return name == "endpoint_states"
	case "6f7cbcf91700980657d37615e340299ad6d2ea1abfcaf67293063323c0d1e881":
		return name == "handshakes"
	}
	return false
}

// WithoutFormer returns the specs without those whose pinned maps have a former layout. These maps
// keep the recorded layout, so the former build can adopt them again. A map whose counts move to
// other maps keeps it until RecordLayouts is called.
func WithoutFormer(dir string, specs map[string]*ebpf.MapSpec) (map[string]*ebpf.MapSpec, error) {
	known, err := openLayouts(dir)
	if errors.Is(err, os.ErrNotExist) {
		return specs, nil
	}
	if err != nil {
		return nil, err
	}
	defer known.Close()
	list := maps.Clone(specs)
	maps.DeleteFunc(list, func(name string, _ *ebpf.MapSpec) bool {
		var was layoutHash
		return known.Lookup(keyOf(name), &was) == nil && (isFormer(name, was) || hasTotalCounts(name, was))
	})
	return list, nil
}

// RecordLayouts keeps the layouts of maps that are pinned now.
func RecordLayouts(dir string, specs map[string]*ebpf.MapSpec) error {
	known, err := openLayouts(dir)
	if errors.Is(err, os.ErrNotExist) {
		known, err = makeLayouts(dir)
	}
	if err != nil {
		return err
	}
	defer known.Close()
	for name, spec := range specs {
		if err := known.Put(keyOf(name), hashOf(spec)); err != nil {
			return fmt.Errorf("keep layout of map %s: %w", name, err)
		}
	}
	return nil
}

// DropOtherLayout unpins an expendable map if its layout differs.
func DropOtherLayout(dir, name string, spec *ebpf.MapSpec) error {
	err := CheckLayouts(dir, map[string]*ebpf.MapSpec{name: spec})
	if errors.Is(err, ErrLayout) {
		return os.Remove(filepath.Join(Maps(dir), name))
	}
	return err
}

func openLayouts(dir string) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, layoutsPin), nil)
	if err != nil {
		return nil, fmt.Errorf("open layouts of pinned maps: %w", err)
	}
	if m.KeySize() != uint32(len(layoutName{})) || m.ValueSize() != uint32(len(layoutHash{})) {
		_ = m.Close()
		return nil, Refuse(errors.New("their layouts are written in a form that this build does not read"))
	}
	return m, nil
}

func makeLayouts(dir string) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "loxilb_layouts", Type: ebpf.Hash, Flags: unix.BPF_F_NO_PREALLOC,
		KeySize: uint32(len(layoutName{})), ValueSize: uint32(len(layoutHash{})), MaxEntries: layoutsMax,
	})
	if err != nil {
		return nil, fmt.Errorf("make layouts of pinned maps: %w", err)
	}
	if err := m.Pin(filepath.Join(dir, layoutsPin)); err != nil {
		return nil, errors.Join(fmt.Errorf("pin layouts of pinned maps: %w", err), m.Close())
	}
	return m, nil
}

func keyOf(name string) (key layoutName) {
	copy(key[:], name)
	return key
}

// Hash returns a hash of the layouts of all these maps, in hexadecimal.
func Hash(specs map[string]*ebpf.MapSpec) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		fmt.Fprintf(h, "%s %x\n", name, hashOf(specs[name]))
	}
	return fmt.Sprintf("%.8x", h.Sum(nil))
}

// hashOf returns the same hash for equal layouts, regardless of the order and of the compiler.
func hashOf(spec *ebpf.MapSpec) (sum layoutHash) {
	h := sha256.New()
	describeMap(h, spec)
	h.Sum(sum[:0])
	return sum
}

// describeMap leaves out what the kernel reports about a map, and what may change: flags and the
// number of entries.
func describeMap(w io.Writer, spec *ebpf.MapSpec) {
	fmt.Fprintf(w, "map %d key %d ", spec.Type, spec.KeySize)
	describeType(w, spec.Key)
	fmt.Fprintf(w, " value %d ", spec.ValueSize)
	describeType(w, spec.Value)
	if spec.InnerMap != nil {
		fmt.Fprint(w, " of ")
		describeMap(w, spec.InnerMap)
	}
}

// describeType writes the names, sizes and offsets of all members of a type. Names of types do not
// matter, and are omitted.
func describeType(w io.Writer, t btf.Type) {
	switch t := btf.UnderlyingType(t).(type) {
	case nil:
		fmt.Fprint(w, "unknown")
	case *btf.Int:
		fmt.Fprintf(w, "int%d.%d", t.Size, t.Encoding)
	case *btf.Enum:
		fmt.Fprintf(w, "enum%d", t.Size)
	case *btf.Float:
		fmt.Fprintf(w, "float%d", t.Size)
	case *btf.Array:
		fmt.Fprintf(w, "[%d]", t.Nelems)
		describeType(w, t.Type)
	case *btf.Struct:
		fmt.Fprintf(w, "struct%d", t.Size)
		describeMembers(w, t.Members)
	case *btf.Union:
		fmt.Fprintf(w, "union%d", t.Size)
		describeMembers(w, t.Members)
	default: // a pointer, whose target is a type of the kernel
		fmt.Fprintf(w, "%T", t)
	}
}

func describeMembers(w io.Writer, members []btf.Member) {
	fmt.Fprint(w, "{")
	for _, m := range members {
		fmt.Fprintf(w, "%s@%d:%d ", m.Name, m.Offset, m.BitfieldSize)
		describeType(w, m.Type)
		fmt.Fprint(w, ";")
	}
	fmt.Fprint(w, "}")
}
