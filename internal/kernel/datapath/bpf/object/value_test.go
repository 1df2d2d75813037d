package object

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// objectWithValue returns the spec of an object whose program reads the second word of the value of
// the map states, and a variable of another section.
func objectWithValue() *ebpf.CollectionSpec {
	return &ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{
			"states":       {Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1},
			".data.states": {Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1},
			".data.others": {Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1},
		},
		Programs: map[string]*ebpf.ProgramSpec{"reader": {Instructions: asm.Instructions{
			asm.LoadMapValue(asm.R1, 0, 4).WithReference(".data.states"),
			asm.LoadMapValue(asm.R2, 0, 0).WithReference(".data.others"),
			asm.LoadMapPtr(asm.R3, 0).WithReference("states"),
			asm.Return(),
		}}},
	}
}

func TestAccessValues(t *testing.T) {
	t.Parallel()
	spec := objectWithValue()
	if err := accessValues(spec); err != nil {
		t.Fatal(err)
	}
	if spec.Maps["states"] == nil || spec.Maps[".data.others"] == nil || len(spec.Maps) != 2 {
		t.Errorf("the maps are %v, want states and .data.others", spec.Maps)
	}
	program := spec.Programs["reader"].Instructions
	for i, want := range []string{"states", ".data.others", "states"} {
		if got := program[i].Reference(); got != want {
			t.Errorf("instruction %d accesses %q, want %q", i, got, want)
		}
	}
	if ins := program[0]; ins.Src != asm.PseudoMapValue || ins.Constant != 4<<32 {
		t.Errorf("the value is accessed by %v with the constant %#x, want its second word in place", ins, ins.Constant)
	}
}

func TestAccessValuesOfOtherMaps(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*ebpf.MapSpec){
		"a hash":             func(m *ebpf.MapSpec) { m.Type = ebpf.Hash },
		"one value per CPU":  func(m *ebpf.MapSpec) { m.Type = ebpf.PerCPUArray },
		"two values":         func(m *ebpf.MapSpec) { m.MaxEntries = 2 },
		"a value of 9 bytes": func(m *ebpf.MapSpec) { m.ValueSize = 9 },
	} {
		spec := objectWithValue()
		change(spec.Maps["states"])
		if err := accessValues(spec); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
