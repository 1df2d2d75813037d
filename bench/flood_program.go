package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"loxilb/test/netnstest"
)

// newFloodGenerator returns a generator that writes templates in turn. A counter determines the
// numbers, so it needs no memory for frames, and no two frames are equal.
func newFloodGenerator(h *netnstest.Host, device string, cpu int, templates []template) (*generator, error) {
	g := &generator{host: h, cpu: cpu}
	link, err := h.Netlink().LinkByName(device)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", device, err)
	}
	if g.next, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}); err != nil {
		return nil, fmt.Errorf("make the flood's counter: %w", err)
	}
	if err := g.next.Put(uint32(0), rand.Uint64()>>1); err != nil {
		return nil, errors.Join(err, g.close())
	}
	program, size, err := floodProgram(g.next, templates, link.Attrs().Index)
	if err == nil {
		g.size = size
		g.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: program})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load the flood: %w", err), g.close())
	}
	return g, nil
}

// floodProgram writes one or two templates in turn, with numbers from a counter, and redirects them
// to an interface. Input frames must have the returned size. R7 is the frame, R8 the counter.
func floodProgram(next *ebpf.Map, templates []template, ifindex int) (p asm.Instructions, size int, err error) {
	const drop, send, second = "drop", "send", "second"
	first, err := templates[0].frame()
	if err != nil {
		return nil, 0, err
	}
	p = asm.Instructions{
		asm.LoadMem(asm.R7, asm.R1, 0, asm.Word), // data
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // data_end
		asm.Mov.Reg(asm.R2, asm.R7),
		asm.Add.Imm(asm.R2, int32(len(first))),
		asm.JGT.Reg(asm.R2, asm.R3, drop),
		asm.StoreImm(asm.R10, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, next.FD()),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, drop),
		asm.LoadMem(asm.R8, asm.R0, 0, asm.DWord),
		asm.Mov.Reg(asm.R9, asm.R8),
		asm.Add.Imm(asm.R9, 1),
		asm.StoreMem(asm.R0, 0, asm.R9, asm.DWord),
	}
	if len(templates) == 2 { // both have the same numbers
		p = append(p, asm.Mov.Reg(asm.R9, asm.R8), asm.And.Imm(asm.R9, 1), asm.RSh.Imm(asm.R8, 1))
	}
	p = append(p, mix()...)
	if len(templates) == 2 {
		p = append(p, asm.JNE.Imm(asm.R9, 0, second))
	}
	p = append(p, templates[0].write(first)...)
	if len(templates) == 2 {
		other, err := templates[1].frame()
		if err != nil {
			return nil, 0, err
		}
		if len(other) != len(first) {
			return nil, 0, fmt.Errorf("frames have %d and %d bytes", len(first), len(other))
		}
		written := templates[1].write(other)
		written[0] = written[0].WithSymbol(second)
		p = append(append(p, asm.Ja.Label(send)), written...)
	}
	return append(p,
		asm.Mov.Imm(asm.R1, int32(ifindex)).WithSymbol(send),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 1).WithSymbol(drop), // XDP_DROP
		asm.Return(),
	), len(first), nil
}

// mix derives a random-looking number from the counter in R8, different for each counter. It
// clobbers R1.
func mix() asm.Instructions {
	return asm.Instructions{
		asm.LoadImm(asm.R1, int64(odd(0)), asm.DWord), asm.Mul.Reg(asm.R8, asm.R1),
		asm.Mov.Reg(asm.R1, asm.R8), asm.RSh.Imm(asm.R1, 32), asm.Xor.Reg(asm.R8, asm.R1),
	}
}

// odd returns a multiplier without a pattern: the bits of the golden ratio, rotated.
func odd(n int) uint64 { return bits.RotateLeft64(0x9e3779b97f4a7c15, 7*n) | 1 }

// write writes a frame, fills its holes and corrects its checksums.
func (t template) write(frame []byte) (p asm.Instructions) {
	at := 0
	for ; at+4 <= len(frame); at += 4 {
		p = append(p, asm.StoreImm(asm.R7, int16(at), int64(int32(binary.LittleEndian.Uint32(frame[at:]))), asm.Word))
	}
	for ; at < len(frame); at++ {
		p = append(p, asm.StoreImm(asm.R7, int16(at), int64(frame[at]), asm.Byte))
	}
	for _, h := range t.holes {
		p = append(p, h.fill()...)
	}
	for _, s := range t.sums {
		p = append(p, s.correct(frame)...)
	}
	return p
}

// fill writes a hole's number.
func (h hole) fill() asm.Instructions {
	p := asm.Instructions{
		asm.LoadImm(asm.R1, int64(odd(h.number+1)), asm.DWord),
		asm.Mul.Reg(asm.R1, asm.R8),
		asm.RSh.Imm(asm.R1, 32),
	}
	if h.keep != 0 {
		p = append(p, asm.And.Imm32(asm.R1, h.littleEndian(h.keep)), asm.Or.Imm32(asm.R1, h.littleEndian(h.set)))
	}
	return append(p, asm.StoreMem(asm.R7, int16(h.at), asm.R1, h.width()))
}

func (h hole) width() asm.Size {
	if h.size == 2 {
		return asm.Half
	}
	return asm.Word
}

// littleEndian converts a number from network order.
func (h hole) littleEndian(n uint32) int32 {
	if h.size == 2 {
		return int32(bits.ReverseBytes16(uint16(n)))
	}
	return int32(bits.ReverseBytes32(n))
}

// correct adds the holes' values to a checksum that is correct while they are zero. Such sums do
// not depend on byte order.
func (s checksum) correct(frame []byte) asm.Instructions {
	p := asm.Instructions{asm.Mov.Imm(asm.R2, int32(^binary.LittleEndian.Uint16(frame[s.at:])))}
	for _, h := range s.covers {
		for at := h.at; at < h.at+h.size; at += 2 {
			p = append(p, asm.LoadMem(asm.R1, asm.R7, int16(at), asm.Half), asm.Add.Reg(asm.R2, asm.R1))
		}
	}
	return append(p, storeSum(int16(s.at))...)
}

// storeSum folds the sum in R2 and writes the checksum. It clobbers R1.
func storeSum(at int16) (p asm.Instructions) {
	for range 2 {
		p = append(p, asm.Mov.Reg(asm.R1, asm.R2), asm.RSh.Imm(asm.R1, 16), asm.And.Imm(asm.R2, 0xffff), asm.Add.Reg(asm.R2, asm.R1))
	}
	return append(p, asm.Xor.Imm(asm.R2, 0xffff), asm.StoreMem(asm.R7, at, asm.R2, asm.Half))
}
