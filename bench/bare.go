package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"loxilb/test/netnstest"
)

// bare returns the least that a program at the tc hook can do, and so what no load balancer there
// can do better: the client speaks to the endpoint itself, and each packet is given the MAC
// addresses of its next hop, which are known beforehand, and put past the queue of the veth.
// Nothing is looked up, translated, counted or checked.
func bare(_ context.Context, r *rig, s service) (netip.AddrPort, error) {
	endpoint := r.serving[0]
	for _, way := range [][2]*netnstest.Host{{r.Client, endpoint}, {endpoint, r.Client}} {
		if err := r.bareWay(way[0], way[1]); err != nil {
			return netip.AddrPort{}, err
		}
	}
	return netip.AddrPortFrom(endpointAddr(endpoint), uint16(s.target)), nil
}

// bareWay sends what comes from one host to another.
func (r *rig) bareWay(from, to *netnstest.Host) error {
	return r.LB.Do(func() error {
		in, err := r.LB.Netlink().LinkByName(from.Name)
		if err != nil {
			return fmt.Errorf("find the interface to %s: %w", from.Name, err)
		}
		out, err := r.LB.Netlink().LinkByName(to.Name)
		if err != nil {
			return fmt.Errorf("find the interface to %s: %w", to.Name, err)
		}
		dst, err := to.MAC("eth0")
		if err != nil {
			return err
		}
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Type: ebpf.SchedCLS, License: "GPL",
			Instructions: bareProgram(append(dst, out.Attrs().HardwareAddr...), out.Attrs().Index),
		})
		if err != nil {
			return fmt.Errorf("load the bare program: %w", err)
		}
		l, err := link.AttachTCX(link.TCXOptions{Interface: in.Attrs().Index, Program: p, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return errors.Join(fmt.Errorf("attach the bare program: %w", err), p.Close())
		}
		r.Cleanup(func() { _ = errors.Join(l.Close(), p.Close()) })
		return nil
	})
}

// bareProgram gives IPv4 packets these addresses, destination first, and hands them to the other
// end of an interface's veth. All others go on.
func bareProgram(macs net.HardwareAddr, ifindex int) asm.Instructions {
	p := append(packetOf(34),
		asm.LoadMem(asm.R1, asm.R7, 12, asm.Half),
		asm.JNE.Imm(asm.R1, 0x0008, goesOn), // 0x0800 as a little-endian machine reads it
	)
	for i, b := range macs {
		p = append(p, asm.StoreImm(asm.R7, int16(i), int64(b), asm.Byte))
	}
	return append(p,
		asm.Mov.Imm(asm.R1, int32(ifindex)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirectPeer.Call(), asm.Return(),
		asm.Mov.Imm(asm.R0, -1).WithSymbol(goesOn), asm.Return()) // TCX_NEXT
}
