package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"loxilb/internal/pkt"
	"loxilb/test/netnstest"
)

// generator sends frames from a host's interface as fast as the other side receives them: an XDP
// program runs on frames that are really sent (BPF_F_TEST_XDP_LIVE_FRAMES). The kernel recycles the
// memory of frames, which may have been changed, so the program rewrites each frame.
//
// The other end must be in NAPI mode, which GRO puts a veth into; the receiver's work is then done
// on the generator's CPU, between its batches of 64 frames.
type generator struct {
	host    *netnstest.Host
	cpu     int
	size    int       // of a frame
	frames  *ebpf.Map // all frames; nil if the program builds them
	next    *ebpf.Map // index of the next frame
	program *ebpf.Program
}

// newGenerator returns a generator that sends the frames in round-robin order.
func newGenerator(h *netnstest.Host, device string, cpu int, frames [][frameSize]byte) (*generator, error) {
	g := &generator{host: h, cpu: cpu, size: frameSize}
	var err error
	if g.frames, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: frameSize, MaxEntries: uint32(len(frames))}); err != nil {
		return nil, fmt.Errorf("make the generator's frames: %w", err)
	}
	keys := make([]uint32, len(frames))
	for i := range keys {
		keys[i] = uint32(i)
	}
	if _, err := g.frames.BatchUpdate(keys, frames, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("write the generator's frames: %w", err), g.close())
	}
	if err := g.load(device, len(frames)); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

// truncated returns a generator that sends only the first n frames.
func (g *generator) truncated(device string, n int) (*generator, error) {
	f := &generator{host: g.host, cpu: g.cpu, size: g.size}
	var err error
	if f.frames, err = g.frames.Clone(); err != nil {
		return nil, err
	}
	if err := f.load(device, n); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (g *generator) load(device string, n int) (err error) {
	link, err := g.host.Netlink().LinkByName(device)
	if err != nil {
		return fmt.Errorf("find %s: %w", device, err)
	}
	if g.next, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}); err != nil {
		return fmt.Errorf("make the generator's index: %w", err)
	}
	g.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "GPL", Instructions: generatorProgram(g.frames, g.next, n, link.Attrs().Index),
	})
	if err != nil {
		return fmt.Errorf("load the generator: %w", err)
	}
	return nil
}

// generatorProgram returns a program that writes the next of n frames and redirects it to an
// interface.
func generatorProgram(frames, next *ebpf.Map, n, ifindex int) asm.Instructions {
	const drop = "drop"
	lookup := func(m *ebpf.Map) asm.Instructions { // looks up the key at r10-4
		return asm.Instructions{
			asm.LoadMapPtr(asm.R1, m.FD()),
			asm.Mov.Reg(asm.R2, asm.R10),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, drop),
		}
	}
	p := asm.Instructions{
		asm.LoadMem(asm.R7, asm.R1, 0, asm.Word), // data
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // data_end
		asm.Mov.Reg(asm.R2, asm.R7),
		asm.Add.Imm(asm.R2, frameSize),
		asm.JGT.Reg(asm.R2, asm.R3, drop),
		asm.StoreImm(asm.R10, -4, 0, asm.Word),
	}
	p = append(p, lookup(next)...)
	p = append(p,
		asm.LoadMem(asm.R8, asm.R0, 0, asm.Word),
		asm.Mov.Reg(asm.R9, asm.R8),
		asm.Add.Imm(asm.R9, 1),
		asm.JLT.Imm(asm.R9, int32(n), "kept"),
		asm.Mov.Imm(asm.R9, 0),
		asm.StoreMem(asm.R0, 0, asm.R9, asm.Word).WithSymbol("kept"),
		asm.StoreMem(asm.R10, -4, asm.R8, asm.Word),
	)
	p = append(p, lookup(frames)...)
	for at := int16(0); at < frameSize; at += 4 {
		p = append(p, asm.LoadMem(asm.R1, asm.R0, at, asm.Word), asm.StoreMem(asm.R7, at, asm.R1, asm.Word))
	}
	return append(p,
		asm.Mov.Imm(asm.R1, int32(ifindex)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 1).WithSymbol(drop), // XDP_DROP
		asm.Return(),
	)
}

// send sends n frames in one run and returns the duration.
func (g *generator) send(frames int) (took time.Duration, err error) {
	err = g.host.Do(func() error {
		restore, err := pinThread(g.cpu)
		if err != nil {
			return err
		}
		defer restore()
		start := time.Now()
		_, err = g.program.Run(&ebpf.RunOptions{
			Data: make([]byte, g.size), Repeat: uint32(frames), Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES,
		})
		took = time.Since(start)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("send %d frames: %w", frames, err)
	}
	return took, nil
}

// pinThread keeps this thread on a CPU and blocks its signals: a signal would end the run.
func pinThread(cpu int) (restore func(), err error) {
	var before, pinned unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("read the CPU affinity of the thread: %w", err)
	}
	pinned.Set(cpu)
	if err := unix.SchedSetaffinity(0, &pinned); err != nil {
		return nil, fmt.Errorf("pin the thread to CPU %d: %w", cpu, err)
	}
	var all, former unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^uint64(0)
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &all, &former); err != nil {
		return nil, errors.Join(fmt.Errorf("block signals: %w", err), unix.SchedSetaffinity(0, &before))
	}
	return func() {
		_ = unix.PthreadSigmask(unix.SIG_SETMASK, &former, nil)
		_ = unix.SchedSetaffinity(0, &before)
	}, nil
}

func (g *generator) close() error {
	var errs []error
	for _, m := range []*ebpf.Map{g.frames, g.next} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	if g.program != nil {
		errs = append(errs, g.program.Close())
	}
	return errors.Join(errs...)
}

// frameSize is the size of the generator's frames: Ethernet's minimum, without the checksum of 4
// bytes that a card adds.
const frameSize = 60

// frameMark is the IP identification by which sinks recognize the generator's packets.
const frameMark = 0xbe7c

// flow is the source and destination of a generated packet, and its position in a TCP connection.
type flow struct {
	from, to netip.AddrPort
	tcp      bool
	seq, ack uint32
	tunnel   uint32 // the GTP-U tunnel that carries the packet; 0: none
}

// frame returns a flow's packet, with correct checksums: a TCP acknowledgement without options, or
// 18 bytes of UDP. In a GTP-U packet these are the header and 10 bytes of user data.
func (f flow) frame(src, dst net.HardwareAddr) (out [frameSize]byte, err error) {
	line := fmt.Sprintf("udp %v > %v len 18", f.from, f.to)
	if f.tunnel > 0 {
		line = fmt.Sprintf("udp %v > %v data 30ff000a%08x%020x", f.from, f.to, f.tunnel, 0)
	}
	if f.tcp {
		line = fmt.Sprintf("tcp %v > %v A seq %d ack %d win 1000 pad 6", f.from, f.to, f.seq, f.ack)
	}
	p, err := pkt.Parse(fmt.Sprintf("%s ipid %d from %v to %v", line, frameMark, src, dst))
	if err != nil {
		return out, err
	}
	if n := copy(out[:], p.Build()); n != frameSize {
		return out, fmt.Errorf("the frame has %d bytes, not %d", n, frameSize)
	}
	return out, nil
}

// manyFlows returns n UDP flows from many ports and addresses behind the client, in 10.99.0.0/16.
func manyFlows(n int, to netip.AddrPort) []flow {
	const perAddress, firstPort = 50_000, 2000
	out := make([]flow, n)
	for i := range out {
		a := i / perAddress
		from := netip.AddrFrom4([4]byte{10, 99, byte(a >> 8), byte(a)})
		out[i] = flow{from: netip.AddrPortFrom(from, uint16(firstPort+i%perAddress)), to: to}
	}
	return out
}
