package main

import (
	"cmp"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"loxilb/test/packet/lab"
)

// profileMain prints where a path spends its instructions: `bench profile [-lines N] PATH`. It
// counts BPF instructions; the kernel compiles each into one to three instructions of the
// processor. A call of a helper counts as one.
func profileMain(args []string) error {
	flags := flag.NewFlagSet("profile", flag.ContinueOnError)
	lines := flags.Int("lines", 0, "also print this many lines of source")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("profile needs the quoted name of one path of bench/results/packet.txt")
	}
	name := flags.Arg(0)
	i := slices.IndexFunc(paths(), func(p path) bool { return p.name == name })
	if i < 0 {
		return fmt.Errorf("path %q is not in bench/results/packet.txt", name)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the namespace ends with the thread
		done <- profile(os.Stdout, paths()[i].in(1), *lines)
	}()
	return <-done
}

// profile prints the instructions that a path takes in each function.
func profile(w io.Writer, path path, lines int) (err error) {
	p, err := newProfiler()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	run, err := p.fewest(path, 0)
	if err != nil {
		return err
	}
	return run.print(w, lines)
}

// profiler has the data path, with the services of all paths, and a copy of its program that counts
// how often each block of instructions runs.
type profiler struct {
	lab      *lab.Lab
	programs *programs
	*blockCounts
	others   []*blockCounts // counts of the programs that this one calls
	extended bool           // with protocolServices
}

func newProfiler() (p *profiler, err error) {
	p = &profiler{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.lab, err = lab.New(lab.Config{Connections: 1 << 16}); err != nil {
		return nil, err
	}
	if p.programs, err = findPrograms(); err != nil {
		return nil, err
	}
	if err := addPathServices(p.lab); err != nil {
		return nil, err
	}
	if p.blockCounts, err = p.programs.loadBlocks(); err != nil {
		return p, err
	}
	return p, p.countOthers()
}

// extend adds protocolServices to the data path.
func (p *profiler) extend() error {
	p.extended = true
	if err := addServiceLines(p.lab, protocolServices()); err != nil {
		return err
	}
	return p.countOthers()
}

// countOthers adds counters to the programs that the data path calls.
func (p *profiler) countOthers() (err error) {
	for _, b := range p.others {
		err = errors.Join(err, b.counts.Close())
	}
	if p.others = nil; err != nil {
		return err
	}
	return p.lab.Datapath.TestRun().Collection.Rewrite(func(program asm.Instructions) (asm.Instructions, error) {
		if shorter, err := withoutFunction(program, omittedFunction); err == nil { // other programs have room for counters
			program = shorter
		}
		b := &blockCounts{}
		program, err := b.count(program)
		if err == nil {
			p.others = append(p.others, b)
		}
		return program, err
	})
}

func (p *profiler) close() (err error) {
	for _, b := range p.others {
		err = errors.Join(err, b.counts.Close())
	}
	if p.blockCounts != nil {
		err = errors.Join(err, p.blockCounts.close())
	}
	if p.programs != nil {
		err = errors.Join(err, p.programs.close())
	}
	if p.lab != nil {
		err = errors.Join(err, p.lab.Close())
	}
	return err
}

// run runs a path with two ports, and returns the cost of the second run: the first one also has to
// resolve next hops.
func (p *profiler) run(path path, port int) (profiled, error) {
	for i, program := range []*ebpf.Program{p.programs.live, p.program} {
		link, frame, err := path.prepare(p.lab, port+i)
		if err != nil {
			return profiled{}, err
		}
		for _, b := range append(p.others[:len(p.others):len(p.others)], p.blockCounts) {
			if err := b.reset(); err != nil {
				return profiled{}, err
			}
		}
		if err := runOnce(program, frame, link.Index); err != nil {
			return profiled{}, err
		}
	}
	all, err := p.read()
	for _, b := range p.others {
		one, failed := b.read()
		all.add(one)
		err = errors.Join(err, failed)
	}
	return all, err
}

// codeBlock is a basic block: instructions without a jump between them.
type codeBlock struct {
	function string
	lines    []string // of each instruction: file:line
	lookups  int      // calls of the helper that looks up in maps
	helpers  int      // calls of other helpers
	blind    bool     // not counted: no register was free
}

// blockCounts is a copy of the program that counts its blocks.
type blockCounts struct {
	program *ebpf.Program
	counts  *ebpf.Map // 0 -> how often each block has run
	blocks  []codeBlock
}

func (b *blockCounts) close() error { return errors.Join(b.program.Close(), b.counts.Close()) }

// reset sets all counts to zero.
func (b *blockCounts) reset() error {
	return b.counts.Put(uint32(0), make([]byte, b.counts.ValueSize()))
}

// loadBlocks loads a copy of the program, with its maps, that counts blocks.
func (p *programs) loadBlocks() (b *blockCounts, err error) {
	b = &blockCounts{}
	b.program, err = p.loadCopy(b.count)
	if err != nil && b.counts != nil {
		b.counts.Close()
	}
	return b, err
}

// count makes a map for the counts of a program's blocks, and returns the program with code that
// counts.
func (b *blockCounts) count(program asm.Instructions) (_ asm.Instructions, err error) {
	program = nameTargets(program)
	b.blocks = nil
	starts := blockStarts(program)
	b.counts, err = ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.Array, KeySize: 4, ValueSize: uint32(8 * len(starts)), MaxEntries: 1,
	})
	if err != nil {
		return nil, err
	}
	return b.insert(program, starts), nil
}

// blockStarts returns the indexes of the first instructions of blocks: starts of functions, targets
// of jumps, and instructions after jumps.
func blockStarts(program asm.Instructions) (starts []int) {
	for i := range program {
		afterJump := i > 0 && endsBlock(&program[i-1])
		if afterJump || program[i].Symbol() != "" || btf.FuncMetadata(&program[i]) != nil {
			starts = append(starts, i)
		}
	}
	return starts
}

// endsBlock reports whether an instruction jumps or returns, so a block ends with it.
func endsBlock(ins *asm.Instruction) bool {
	return ins.OpCode.Class().IsJump() && ins.OpCode.JumpOp() != asm.Call
}

// insert adds a counter after the first instruction of each block, or before it if it is a jump.
func (b *blockCounts) insert(program asm.Instructions, starts []int) (out asm.Instructions) {
	free := freeRegisters(program)
	function, source := "", ""
	for n, start := range starts {
		end := len(program)
		if n+1 < len(starts) {
			end = starts[n+1]
		}
		if btf.FuncMetadata(&program[start]) != nil {
			function = program[start].Symbol()
		}
		at := codeBlock{function: function}
		for i := start; i < end; i++ {
			if line, ok := program[i].Source().(*btf.Line); ok {
				source = fmt.Sprintf("%s:%d", filepath.Base(line.FileName()), line.LineNumber())
			}
			at.lines = append(at.lines, source)
			at.countCall(&program[i])
		}
		first := program[start]
		counter := b.counter(free[start], n)
		if endsBlock(&first) && btf.FuncMetadata(&first) != nil {
			counter = nil // the function would begin with the counter
		}
		at.blind = len(counter) == 0
		if endsBlock(&first) && len(counter) > 0 {
			counter[0] = counter[0].WithSymbol(first.Symbol())
			out = append(append(out, counter...), first.WithSymbol(""))
		} else {
			out = append(append(out, first), counter...)
		}
		out = append(out, program[start+1:end]...)
		b.blocks = append(b.blocks, at)
	}
	return out
}

// counter returns instructions that count a block. With only one free register, they set the count
// to 1.
func (b *blockCounts) counter(free []asm.Register, n int) asm.Instructions {
	switch at := uint32(8 * n); len(free) {
	case 0:
		return nil
	case 1:
		return asm.Instructions{
			asm.LoadMapValue(free[0], b.counts.FD(), at),
			asm.StoreImm(free[0], 0, 1, asm.Word),
		}
	default:
		return asm.Instructions{
			asm.LoadMapValue(free[0], b.counts.FD(), at),
			asm.Mov.Imm(free[1], 1),
			asm.StoreXAdd(free[0], free[1], asm.DWord),
		}
	}
}

// countCall counts the call of a helper. Helpers that the kernel inlines (the number of the CPU,
// the clock) do not count.
func (c *codeBlock) countCall(ins *asm.Instruction) {
	if !ins.IsBuiltinCall() {
		return
	}
	switch asm.BuiltinFunc(ins.Constant) {
	case asm.FnMapLookupElem:
		c.lookups++
	case asm.FnJiffies64, asm.FnGetSmpProcessorId:
	default:
		c.helpers++
	}
}

// profiled is the number of instructions of a run.
type profiled struct {
	total              int
	lookups, helpers   int // calls
	blind, blocks      int // blocks that cannot be counted, and all blocks
	byFunction, byLine map[string]int
}

// read returns the counts.
func (b *blockCounts) read() (profiled, error) {
	r := profiled{blocks: len(b.blocks), byFunction: map[string]int{}, byLine: map[string]int{}}
	var value []byte
	if err := b.counts.Lookup(uint32(0), &value); err != nil {
		return r, err
	}
	for i, at := range b.blocks {
		if at.blind {
			r.blind++
		}
		times := int(binary.NativeEndian.Uint64(value[8*i:]))
		if times == 0 {
			continue
		}
		r.total += times * len(at.lines)
		r.lookups += times * at.lookups
		r.helpers += times * at.helpers
		r.byFunction[at.function] += times * len(at.lines)
		for _, line := range at.lines {
			r.byLine[line] += times
		}
	}
	return r, nil
}

// add adds the counts of another program.
func (r *profiled) add(other profiled) {
	r.total, r.lookups, r.helpers = r.total+other.total, r.lookups+other.lookups, r.helpers+other.helpers
	r.blind, r.blocks = r.blind+other.blind, r.blocks+other.blocks
	for name, n := range other.byFunction {
		r.byFunction[name] += n
	}
	for line, n := range other.byLine {
		r.byLine[line] += n
	}
}

// print prints the instructions by function, and by line of source.
func (r profiled) print(w io.Writer, lines int) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%d\tinstructions; %d of %d blocks are not counted\t\n", r.total, r.blind, r.blocks)
	printMost(t, r.byFunction, len(r.byFunction))
	if lines > 0 {
		fmt.Fprintln(t)
		printMost(t, r.byLine, lines)
	}
	return t.Flush()
}

// printMost prints the largest counts.
func printMost(w io.Writer, counts map[string]int, most int) {
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	for _, name := range names[:min(most, len(names))] {
		fmt.Fprintf(w, "%d\t%s\t\n", counts[name], name)
	}
}
