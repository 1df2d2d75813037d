package pins

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// row returns a map whose values have the fields in this order, 4 bytes each.
func row(fields ...string) *ebpf.MapSpec {
	number := &btf.Int{Name: "unsigned int", Size: 4}
	value := &btf.Struct{Name: "row", Size: uint32(4 * len(fields))}
	for i, name := range fields {
		value.Members = append(value.Members, btf.Member{Name: name, Type: &btf.Typedef{Name: "__u32", Type: number}, Offset: btf.Bits(32 * i)})
	}
	return &ebpf.MapSpec{
		Name: "row", Type: ebpf.Hash, KeySize: 4, ValueSize: value.Size, MaxEntries: 16, Pinning: ebpf.PinByName, Key: number, Value: value,
	}
}

// pin creates the maps as a build with these specs does.
func pin(t testing.TB, dir string, specs map[string]*ebpf.MapSpec) {
	t.Helper()
	for name, spec := range specs {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: spec.Type, KeySize: spec.KeySize, ValueSize: spec.ValueSize, MaxEntries: spec.MaxEntries})
		if err != nil {
			t.Fatal(err)
		}
		err = m.Pin(filepath.Join(Maps(dir), name))
		if err := errors.Join(err, m.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLayouts checks that a map whose fields have moved is refused by name although its size is the
// same, and that new, removed and larger maps are not. Pins of a build that kept no layouts are
// compared by size.
func TestLayouts(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	if err := Prepare(dir); err != nil {
		t.Fatal(err)
	}
	specs := map[string]*ebpf.MapSpec{"changes": row("packets", "bytes"), "goes": row("a"), "stays": row("a", "b", "c")}
	pin(t, dir, specs)
	check := func(specs map[string]*ebpf.MapSpec) error { return CheckLayouts(dir, specs) }
	if err := check(specs); err != nil {
		t.Fatalf("pins without layouts: %v", err)
	}
	if err := RecordLayouts(dir, specs); err != nil {
		t.Fatal(err)
	}
	if err := check(specs); err != nil {
		t.Errorf("the layouts of the same build are refused: %v", err)
	}
	larger := row("a", "b", "c")
	larger.MaxEntries *= 2
	if err := check(map[string]*ebpf.MapSpec{"changes": row("packets", "bytes"), "stays": larger, "comes": row("x")}); err != nil {
		t.Errorf("a new map, a removed map or a larger map is refused: %v", err)
	}

	err := check(map[string]*ebpf.MapSpec{"changes": row("bytes", "packets"), "stays": row("a", "b", "c")})
	if !errors.Is(err, ErrLayout) || !strings.Contains(err.Error(), "the pinned maps have another layout: ") {
		t.Errorf("fields in another order give %v, want ErrLayout", err)
	}
	if err != nil && (!strings.Contains(err.Error(), "changes") || strings.Contains(err.Error(), "stays")) {
		t.Errorf("the error must name the changed map alone: %v", err)
	}

	// Expendable maps are dropped instead.
	if err := DropOtherLayout(dir, "changes", row("bytes", "packets")); err != nil {
		t.Error(err)
	}
	if err := DropOtherLayout(dir, "stays", row("a", "b", "c")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(Maps(dir), "changes")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the pinned map was not dropped: %v", err)
	}
	if _, err := os.Stat(filepath.Join(Maps(dir), "stays")); err != nil {
		t.Error(err)
	}

	// A map that is created again has the layout of its creator.
	if err := check(map[string]*ebpf.MapSpec{"changes": row("bytes", "packets")}); err != nil {
		t.Errorf("a map that is not pinned is refused: %v", err)
	}
}

// TestHash checks that the total hash depends on which map has which layout, in any order.
func TestHash(t *testing.T) {
	t.Parallel()
	base := Hash(map[string]*ebpf.MapSpec{"a": row("x"), "b": row("y")})
	if len(base) != 16 || Hash(map[string]*ebpf.MapSpec{"b": row("y"), "a": row("x")}) != base {
		t.Errorf("the hash %s does not have 16 digits, or depends on the order of maps", base)
	}
	for what, specs := range map[string]map[string]*ebpf.MapSpec{
		"exchange": {"a": row("y"), "b": row("x")}, "name": {"a": row("x"), "c": row("y")}, "further map": {"a": row("x"), "b": row("y"), "c": row("z")},
	} {
		if Hash(specs) == base {
			t.Errorf("another %s does not change the hash", what)
		}
	}
}

// TestHashOf checks that the hash depends on the layout of a row, and on nothing else.
func TestHashOf(t *testing.T) {
	t.Parallel()
	base := hashOf(row("a", "b"))
	if again := row("a", "b"); hashOf(again) != base {
		t.Error("the hash of an equal row differs")
	}
	renamed := row("a", "b")
	renamed.Value.(*btf.Struct).Name = "other"
	renamed.MaxEntries = 1
	if hashOf(renamed) != base {
		t.Error("the name of a type or the number of entries changes the hash")
	}
	signed := row("a", "b")
	signed.Value.(*btf.Struct).Members[1].Type = &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	moved := row("a", "b")
	moved.Value.(*btf.Struct).Members[1].Offset = 0
	array := row("a", "b")
	array.Value.(*btf.Struct).Members[1].Type = &btf.Array{Type: &btf.Int{Size: 1}, Index: &btf.Int{Size: 4}, Nelems: 4}
	inner := row("a", "b")
	inner.InnerMap = row("c")
	for what, spec := range map[string]*ebpf.MapSpec{
		"order": row("b", "a"), "sign": signed, "offset": moved, "array": array, "inner map": inner,
	} {
		if hashOf(spec) == base {
			t.Errorf("another %s does not change the hash", what)
		}
	}
}
