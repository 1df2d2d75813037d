package main

import (
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// registers is a set of registers, a bit for each.
type registers uint16

// callerSaved are the registers that a call sets or invalidates: R0 gets the result, R1 to R5 are
// undefined.
const callerSaved = registers(0b11_1111)

func setOf(all ...asm.Register) (s registers) {
	for _, r := range all {
		s |= 1 << r
	}
	return s
}

// freeRegisters returns the registers that are free after each instruction of a program, or before
// it if it jumps. Targets of jumps must have names.
func freeRegisters(program asm.Instructions) [][]asm.Register {
	at := map[string]int{}
	for i := range program {
		if s := program[i].Symbol(); s != "" {
			at[s] = i
		}
	}
	before := make([]registers, len(program))
	after := make([]registers, len(program))
	for changed := true; changed; {
		changed = false
		for i := len(program) - 1; i >= 0; i-- {
			ins := &program[i]
			after[i] = 0
			if !returns(ins) {
				if !jumpsAlways(ins) && i+1 < len(program) && btf.FuncMetadata(&program[i+1]) == nil {
					after[i] |= before[i+1]
				}
				if endsBlock(ins) {
					after[i] |= before[at[ins.Reference()]]
				}
			}
			used, set := usedBy(ins)
			if b := after[i]&^set | used; b != before[i] {
				before[i], changed = b, true
			}
		}
	}
	free := make([][]asm.Register, len(program))
	for i := range program {
		live := after[i]
		if endsBlock(&program[i]) {
			live = before[i]
		}
		for r := asm.R0; r <= asm.R9; r++ {
			if live&setOf(r) == 0 {
				free[i] = append(free[i], r)
			}
		}
	}
	return free
}

func returns(ins *asm.Instruction) bool {
	return ins.OpCode.Class().IsJump() && ins.OpCode.JumpOp() == asm.Exit
}

func jumpsAlways(ins *asm.Instruction) bool {
	return ins.OpCode.Class().IsJump() && ins.OpCode.JumpOp() == asm.Ja
}

// usedBy returns the registers that an instruction reads and sets. A call may read all arguments.
func usedBy(ins *asm.Instruction) (used, set registers) {
	dst, src := setOf(ins.Dst), setOf(ins.Src)
	switch class := ins.OpCode.Class(); {
	case class.IsJump():
		return usedByJump(ins, dst, src)
	case class == asm.LdClass:
		return 0, dst // a constant of 64 bits
	case class == asm.LdXClass:
		return src, dst
	case class == asm.StClass:
		return dst, 0
	case class == asm.StXClass:
		if ins.OpCode.Mode() == asm.AtomicMode {
			return dst | src | setOf(asm.R0), 0
		}
		return dst | src, 0
	}
	if ins.OpCode.Source() == asm.RegSource {
		used = src
	}
	if op := ins.OpCode.ALUOp(); op != asm.Mov {
		used |= dst
	}
	return used, dst
}

func usedByJump(ins *asm.Instruction, dst, src registers) (used, set registers) {
	switch ins.OpCode.JumpOp() {
	case asm.Call:
		return callerSaved &^ setOf(asm.R0), callerSaved
	case asm.Exit:
		return setOf(asm.R0), 0
	case asm.Ja:
		return 0, 0
	}
	if ins.OpCode.Source() == asm.RegSource {
		used = src
	}
	return used | dst, 0
}
