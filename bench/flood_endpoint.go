package main

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"loxilb/test/netnstest"
)

// newStandIn attaches a tc program that takes the flood's packets at an endpoint in the place of
// its stack: it answers SYNs as an endpoint with cookies would, and drops the rest. Endpoints are
// other machines, whose time is not to be the balancer's; a stack would take several times what any
// balancer does, and slow the flood down.
func newStandIn(h *netnstest.Host, v6 bool) (*sink, error) {
	return attachSink(h, func(count *ebpf.Map, ifindex int) asm.Instructions { return standInProgram(count, v6, ifindex) })
}

// standInProgram knows the flood by its addresses (target.source).
func standInProgram(count *ebpf.Map, v6 bool, ifindex int) asm.Instructions {
	const drop = "drop"
	l4, protocol, etherType := int16(34), int16(23), int32(0x0800)
	addresses := swap(26, 30, asm.Word)
	ours := asm.Instructions{
		asm.LoadMem(asm.R1, asm.R7, 26, asm.Byte),
		asm.And.Imm(asm.R1, 0xc0),
		asm.JNE.Imm(asm.R1, 0x80, goesOn),
	}
	if v6 {
		l4, protocol, etherType, addresses = 54, 20, 0x86dd, nil
		for at := int16(0); at < 16; at += 4 {
			addresses = append(addresses, swap(22+at, 38+at, asm.Word)...)
		}
		ours = asm.Instructions{
			asm.LoadMem(asm.R1, asm.R7, 22, asm.Half),
			asm.HostTo(asm.BE, asm.R1, asm.Half),
			asm.JNE.Imm(asm.R1, 0x2a00, goesOn),
		}
	}
	flags, sum := l4+13, l4+16
	p := append(packetOf(int32(l4+20)),
		asm.LoadMem(asm.R1, asm.R7, 12, asm.Half),
		asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.JNE.Imm(asm.R1, etherType, goesOn),
	)
	p = append(p, ours...)
	p = append(p, countOne(count)...)
	p = append(p,
		asm.LoadMem(asm.R1, asm.R7, protocol, asm.Byte),
		asm.JNE.Imm(asm.R1, 6, drop),
		asm.LoadMem(asm.R1, asm.R7, flags, asm.Byte),
		asm.JNE.Imm(asm.R1, 2, drop), // SYN
		asm.StoreImm(asm.R7, flags, 0x12, asm.Byte),
		asm.LoadMem(asm.R1, asm.R7, l4+4, asm.Word), // acknowledges the SYN's number, and takes the same
		asm.HostTo(asm.BE, asm.R1, asm.Word),
		asm.Add.Imm32(asm.R1, 1),
		asm.HostTo(asm.BE, asm.R1, asm.Word),
		asm.StoreMem(asm.R7, l4+8, asm.R1, asm.Word),
	)
	p = append(p, swap(0, 6, asm.Word)...)
	p = append(p, swap(4, 10, asm.Half)...)
	p = append(p, addresses...)
	p = append(p, swap(l4, l4+2, asm.Half)...)
	p = append(p, // what the sum gets: the ACK flag, and the number that was zero
		asm.LoadMem(asm.R2, asm.R7, sum, asm.Half), asm.Xor.Imm(asm.R2, 0xffff),
		asm.Add.Imm(asm.R2, 0x1000),
		asm.LoadMem(asm.R1, asm.R7, l4+8, asm.Half), asm.Add.Reg(asm.R2, asm.R1),
		asm.LoadMem(asm.R1, asm.R7, l4+10, asm.Half), asm.Add.Reg(asm.R2, asm.R1),
	)
	p = append(p, storeSum(sum)...)
	return append(p,
		asm.Mov.Imm(asm.R1, int32(ifindex)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return(),
		asm.Mov.Imm(asm.R0, 2).WithSymbol(drop), asm.Return(), // TC_ACT_SHOT
		asm.Mov.Imm(asm.R0, -1).WithSymbol(goesOn), asm.Return()) // TCX_NEXT
}
