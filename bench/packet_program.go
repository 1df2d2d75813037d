package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"loxilb/internal/kernel/datapath/bpf"
)

// programName is the program that packets of Ethernet interfaces run through.
const programName = "loxilb_ether"

// programs are the loaded program of the data path, a copy that counts its helper calls, and an
// empty one. The first two share their maps.
type programs struct {
	live, counting, empty *ebpf.Program
	maps                  map[string]*ebpf.Map    // by the kernel's names, which have 15 letters
	counts                *ebpf.Map               // helper -> calls
	indexes               map[asm.BuiltinFunc]int // helper -> index of its counter in counts
}

// findPrograms finds the program that this process has loaded, since the data path does not export
// it.
func findPrograms() (p *programs, err error) {
	p = &programs{maps: map[string]*ebpf.Map{}}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.live, err = programOf("self"); err != nil {
		return nil, err
	}
	info, err := p.live.Info()
	if err != nil {
		return nil, err
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, err
		}
		info, err := m.Info()
		if err != nil {
			return nil, err
		}
		p.maps[info.Name] = m
	}
	if p.empty, err = newEmptyProgram(); err != nil {
		return nil, err
	}
	return p, p.loadCounting()
}

func newEmptyProgram() (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
}

// programOf returns the program with a name among the open files of a process. The process is a
// number or "self".
func programOf(process string) (*ebpf.Program, error) {
	files, err := filepath.Glob("/proc/" + process + "/fdinfo/*")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // closed meanwhile
		}
		id, err := strconv.ParseUint(field(string(b), "prog_id"), 10, 32)
		if err != nil {
			continue
		}
		p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
		if err != nil {
			return nil, err
		}
		if info, err := p.Info(); err == nil && info.Name == programName {
			return p, nil
		}
		p.Close()
	}
	return nil, fmt.Errorf("process %s has no program %s", process, programName)
}

// loadCounting loads a copy of the program that counts its calls of each helper.
func (p *programs) loadCounting() (err error) {
	p.counting, err = p.loadCopy(func(program asm.Instructions) (asm.Instructions, error) {
		p.indexes = calledHelpers(program)
		p.counts, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(8 * len(p.indexes)), MaxEntries: 1})
		if err != nil {
			return nil, err
		}
		return countCalls(program, p.counts, p.indexes), nil
	})
	return err
}

// loadCopy loads a second instance of the program, with the maps of the first one and other
// instructions.
func (p *programs) loadCopy(rewrite func(asm.Instructions) (asm.Instructions, error)) (*ebpf.Program, error) {
	spec, err := bpf.LoadTc()
	if err != nil {
		return nil, err
	}
	for name := range spec.Programs {
		if name != programName {
			delete(spec.Programs, name)
		}
	}
	for name, m := range spec.Maps {
		live := p.maps[name[:min(len(name), 15)]]
		if live == nil {
			delete(spec.Maps, name) // declared, not used by this program
			continue
		}
		m.MaxEntries = live.MaxEntries()
	}
	program, err := withoutFunction(spec.Programs[programName].Instructions, omittedFunction)
	if err == nil {
		program, err = rewrite(program)
	}
	if err != nil {
		return nil, err
	}
	spec.Programs[programName].Instructions = program
	replaced := map[string]*ebpf.Map{}
	for name := range spec.Maps {
		replaced[name] = p.maps[name[:min(len(name), 15)]]
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replaced})
	if err != nil {
		return nil, fmt.Errorf("load the counting copy: %w", err)
	}
	defer c.Close()
	return c.DetachProgram(programName), nil
}

// omittedFunction is a function that the counting copy omits. Its maps make room for the map of
// counters: a program may use 64 maps. No packet of the benchmark calls the function.
const omittedFunction = "lease_refuses"

// withoutFunction makes a function of a program return 0 at once.
func withoutFunction(program asm.Instructions, name string) (out asm.Instructions, err error) {
	inside, found := false, false
	for i := range program {
		if ins := &program[i]; btf.FuncMetadata(ins) != nil {
			if inside = ins.Symbol() == name; inside {
				found = true
				first := asm.Mov.Imm(asm.R0, 0)
				first.Metadata = ins.Metadata
				out = append(out, first, asm.Return())
			}
		}
		if !inside {
			out = append(out, program[i])
		}
	}
	if !found {
		return nil, fmt.Errorf("the program has no function %s to leave out", name)
	}
	return out, nil
}

// calledHelpers numbers the helpers that a program calls.
func calledHelpers(program asm.Instructions) map[asm.BuiltinFunc]int {
	seen := map[asm.BuiltinFunc]bool{}
	for _, i := range program {
		if i.IsBuiltinCall() {
			seen[asm.BuiltinFunc(i.Constant)] = true
		}
	}
	out := map[asm.BuiltinFunc]int{}
	for n, f := range slices.Sorted(maps.Keys(seen)) {
		out[f] = n
	}
	return out
}

// countCalls adds a counter after each call, where registers 1 to 5 are free.
func countCalls(program asm.Instructions, counts *ebpf.Map, indexes map[asm.BuiltinFunc]int) (out asm.Instructions) {
	for _, i := range nameTargets(program) {
		out = append(out, i)
		if i.IsBuiltinCall() {
			out = append(out,
				asm.LoadMapValue(asm.R1, counts.FD(), uint32(8*indexes[asm.BuiltinFunc(i.Constant)])),
				asm.Mov.Imm(asm.R2, 1),
				asm.StoreXAdd(asm.R1, asm.R2, asm.DWord),
			)
		}
	}
	return out
}

// nameTargets replaces the offsets of jumps by symbols, so code can be inserted.
func nameTargets(program asm.Instructions) asm.Instructions {
	program = slices.Clone(program)
	at := map[asm.RawInstructionOffset]int{}
	for i := program.Iterate(); i.Next(); {
		at[i.Offset] = i.Index
	}
	for i := program.Iterate(); i.Next(); {
		op := i.Ins.OpCode
		if !op.Class().IsJump() || op.JumpOp() == asm.Call || op.JumpOp() == asm.Exit || i.Ins.Reference() != "" {
			continue
		}
		distance := int64(i.Ins.Offset)
		if op.Class() == asm.Jump32Class && op.JumpOp() == asm.Ja {
			distance = i.Ins.Constant // gotol
		}
		target := &program[at[asm.RawInstructionOffset(int64(i.Offset)+1+distance)]]
		if target.Symbol() == "" {
			*target = target.WithSymbol(fmt.Sprintf("at%d", int64(i.Offset)+1+distance))
		}
		program[i.Index] = i.Ins.WithReference(target.Symbol())
		program[i.Index].Offset = -1
	}
	return program
}

// calls runs the counting copy on a packet, and returns its map look-ups and its calls of other
// helpers. Helpers that the kernel inlines (the number of the CPU, the clock) do not count.
func (p *programs) calls(frame []byte, ifindex int) (lookups, helpers int, err error) {
	before, err := p.read(len(p.indexes))
	if err != nil {
		return 0, 0, err
	}
	if err := runOnce(p.counting, frame, ifindex); err != nil {
		return 0, 0, err
	}
	after, err := p.read(len(p.indexes))
	for f, n := range p.indexes {
		c := int(after[n] - before[n])
		switch f {
		case asm.FnMapLookupElem:
			lookups += c
		case asm.FnJiffies64, asm.FnGetSmpProcessorId:
		default:
			helpers += c
		}
	}
	return lookups, helpers, err
}

func (p *programs) read(n int) ([]uint64, error) {
	var b []byte
	if err := p.counts.Lookup(uint32(0), &b); err != nil {
		return nil, err
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = binary.NativeEndian.Uint64(b[8*i:])
	}
	return out, nil
}

// runOnce runs a program once on a packet that arrives at an interface.
func runOnce(p *ebpf.Program, frame []byte, ifindex int) error { return runOften(p, frame, ifindex, 1) }

// runOften runs a program on a packet many times. The program must not change the packet.
func runOften(p *ebpf.Program, frame []byte, ifindex int, times uint32) error {
	context := make([]byte, 192) // struct __sk_buff
	binary.NativeEndian.PutUint32(context[40:], uint32(ifindex))
	_, err := p.Run(&ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: context, Repeat: times})
	return err
}

// timeOf runs a program once and returns the kernel's measurement in nanoseconds. The kernel's
// statistics must be enabled.
func timeOf(p *ebpf.Program, frame []byte, ifindex int) (float64, error) {
	before, err := p.Stats()
	if err != nil {
		return 0, err
	}
	if err := runOnce(p, frame, ifindex); err != nil {
		return 0, err
	}
	after, err := p.Stats()
	return float64((after.Runtime - before.Runtime).Nanoseconds()), err
}

func (p *programs) close() error {
	var errs []error
	for _, prog := range []*ebpf.Program{p.live, p.counting, p.empty} {
		if prog != nil {
			errs = append(errs, prog.Close())
		}
	}
	for _, m := range p.maps {
		errs = append(errs, m.Close())
	}
	if p.counts != nil {
		errs = append(errs, p.counts.Close())
	}
	return errors.Join(errs...)
}

// flowCost is a result of BenchmarkEstablished of internal/kernel/datapath: the cost of a packet
// when flows take turns. 2 flows fit into the CPU cache, 200,000 do not.
type flowCost struct {
	Flows string  `json:"flows"` // v4/200k
	Empty float64 `json:"empty"` // ns
	Own   float64 `json:"own"`
}

var flowCostLine = regexp.MustCompile(`(?m)^BenchmarkEstablished/(\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) empty-ns\s+(-?[\d.]+) own-ns`)

// parseFlowCosts parses the output of the Go benchmark.
func parseFlowCosts(text string) (out []flowCost, err error) {
	for _, m := range flowCostLine.FindAllStringSubmatch(text, -1) {
		empty, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, err
		}
		own, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return nil, err
		}
		out = append(out, flowCost{m[1], empty, own})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no line of BenchmarkEstablished in %.200q", text)
	}
	return out, nil
}
