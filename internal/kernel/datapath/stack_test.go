package datapath

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"loxilb/internal/kernel/datapath/bpf"
)

// The kernel's limit on a chain of calls. It counts each frame in steps of 32 bytes; kernels since
// 6.8 count less, so a program that loads here may not load on Linux 6.1.
const (
	maxStack  = 512
	maxFrames = 8
	stackStep = 32
)

// TestStackDepth checks that no chain of calls needs more stack, or has more frames, than Linux 6.1
// allows.
//
// V201 the programs fit the stack of every kernel that is supported
func TestStackDepth(t *testing.T) {
	t.Parallel()
	for _, read := range []func() (*ebpf.CollectionSpec, error){
		bpf.LoadTc, bpf.LoadTcTrace, bpf.LoadTcSCTP, bpf.LoadTcProxy, bpf.LoadTcQUIC, bpf.LoadSweep, bpf.LoadSock, bpf.LoadDecap,
		bpf.LoadGtp, bpf.LoadXdp, bpf.LoadXdpTrace,
	} {
		spec, err := read()
		if err != nil {
			t.Fatal(err)
		}
		for name, p := range spec.Programs {
			c := functions(p.Instructions).deepest(name)
			t.Logf("%s: %d bytes, %d frames:%s", name, c.stack, c.frames, c.path)
			if c.stack > maxStack || c.frames > maxFrames {
				t.Errorf("%s takes %d bytes of stack in %d frames, %d and %d are allowed:%s", name, c.stack, c.frames, maxStack, maxFrames, c.path)
			}
		}
	}
}

// function holds the stack use of a function, and the functions that it calls.
type function struct {
	stack int
	calls map[string]bool
}

type callGraph map[string]*function

// chain is the deepest chain of calls from a function.
type chain struct {
	stack, frames int
	path          string
}

// functions finds which function calls which, and how far below the frame pointer each reaches.
func functions(program asm.Instructions) callGraph {
	graph := callGraph{}
	var f *function
	var addresses [11]bool // by register, whether it holds the frame pointer
	for i := range program {
		ins := &program[i]
		if s := ins.Symbol(); s != "" && (f == nil || isFunction(program, s)) {
			f = &function{calls: map[string]bool{}}
			graph[s] = f
		}
		if ins.IsFunctionReference() {
			f.calls[ins.Reference()] = true
		}
		f.stack = max(f.stack, below(ins, &addresses))
	}
	return graph
}

// isFunction reports whether the symbol is called; others are labels.
func isFunction(program asm.Instructions, symbol string) bool {
	for i := range program {
		if program[i].IsFunctionReference() && program[i].Reference() == symbol {
			return true
		}
	}
	return false
}

// below returns how far below the frame pointer an instruction reaches.
func below(ins *asm.Instruction, addresses *[11]bool) int {
	class := ins.OpCode.Class()
	switch {
	case class.IsALU() && ins.OpCode.ALUOp() == asm.Mov && ins.OpCode.Source() == asm.RegSource:
		addresses[ins.Dst] = ins.Src == asm.RFP
	case class.IsALU() && ins.OpCode.ALUOp() == asm.Add && ins.OpCode.Source() == asm.ImmSource:
		if addresses[ins.Dst] && ins.Constant < 0 {
			addresses[ins.Dst] = false
			return int(-ins.Constant)
		}
	case class.IsStore() && ins.Dst == asm.RFP, class == asm.LdXClass && ins.Src == asm.RFP:
		return int(-ins.Offset)
	}
	if class == asm.LdXClass {
		addresses[ins.Dst] = false
	}
	return 0
}

func (g callGraph) deepest(name string) chain {
	var worst chain
	for called := range g[name].calls {
		if c := g.deepest(called); c.stack > worst.stack || (c.stack == worst.stack && c.frames > worst.frames) {
			worst = c
		}
	}
	own := (max(g[name].stack, 1) + stackStep - 1) / stackStep * stackStep
	return chain{own + worst.stack, 1 + worst.frames, fmt.Sprintf(" %s %d%s", name, g[name].stack, worst.path)}
}

// maxMaps is the number of maps that the kernel allows a program. The copy in bench, which counts
// calls, needs one more, and omits another (leftOut).
const maxMaps = 64

// TestMapsOfPrograms checks that no program uses more maps.
func TestMapsOfPrograms(t *testing.T) {
	t.Parallel()
	for _, read := range []func() (*ebpf.CollectionSpec, error){
		bpf.LoadTc, bpf.LoadTcTrace, bpf.LoadTcSCTP, bpf.LoadTcProxy, bpf.LoadTcQUIC, bpf.LoadSweep, bpf.LoadSock, bpf.LoadDecap,
		bpf.LoadGtp, bpf.LoadXdp, bpf.LoadXdpTrace,
	} {
		spec, err := read()
		if err != nil {
			t.Fatal(err)
		}
		for name, p := range spec.Programs {
			used := map[string]bool{}
			for _, ins := range p.Instructions {
				if ins.IsLoadFromMap() {
					used[ins.Reference()] = true
				}
			}
			if len(used) > maxMaps {
				t.Errorf("%s uses %d maps, %d are allowed", name, len(used), maxMaps)
			}
		}
	}
}
