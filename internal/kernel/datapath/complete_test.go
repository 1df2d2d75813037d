package datapath_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"loxilb/internal/kernel/datapath"
	"loxilb/internal/lb"
	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

// TestChecksumComplete sends packets with a sum by the device (CHECKSUM_COMPLETE) through the
// attached program, and checks that the sum still matches the packet when it leaves. Virtual
// interfaces do not compute such sums, but a packet out of a VXLAN tunnel has one, from the
// verification of the outer UDP checksum.
//
// V77 complete checksum: the device's sum is adjusted
func TestChecksumComplete(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]lab.Config{"kfuncs": {}, "old kernel": {OldKernel: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs := make(chan error)
			go func() {
				runtime.LockOSThread() // never unlocked: the namespace ends with the thread
				errs <- checksumComplete(cfg)
			}()
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		})
	}
}

func checksumComplete(cfg lab.Config) (err error) {
	l, err := lab.New(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	for _, text := range []string{
		"10.0.0.1:80/tcp endpoints=192.168.1.10:8080", "10.0.0.1:53/udp endpoints=192.168.1.10:5353",
		"[2001:db8::1]:80/tcp endpoints=[2001:db8:2::10]:8080", "[2001:db8::1]:53/udp endpoints=[2001:db8:2::10]:5353",
	} {
		s, err := lb.ParseService(text)
		if err != nil {
			return err
		}
		if err := l.Apply(s); err != nil {
			return err
		}
	}
	probe, err := newProbe(l.Server.Index)
	if err != nil {
		return err
	}
	defer probe.Close()
	mac, err := addTunnel(l)
	if err != nil {
		return err
	}
	for _, line := range []string{
		"tcp 1.1.1.1:4000 > 10.0.0.1:80 S", "tcp 1.1.1.1:4000 > 10.0.0.1:80 PA len 1001",
		"tcp 1.1.1.1:4000 > 10.0.0.1:80 PA len 8 ipopt 94040000",
		"udp 1.1.1.1:4000 > 10.0.0.1:53 len 3", "udp 1.1.1.1:4000 > 10.0.0.1:53 len 300 csum zero",
		"udp 1.1.1.1:4000 > 10.0.0.1:53 len 300 csum bad", "tcp 1.1.1.1:4000 > 10.0.0.1:80 PA len 8 csum bad",
		"udp 1.1.1.1:4000 > 10.0.0.1:53 data 179d",
		"tcp [2001:db8:100::1]:4000 > [2001:db8::1]:80 S", "tcp [2001:db8:100::1]:4000 > [2001:db8::1]:80 A len 999",
		"udp [2001:db8:100::1]:4000 > [2001:db8::1]:53 len 200", "udp [2001:db8:100::1]:4000 > [2001:db8::1]:53 len 200 csum bad",
		"udp [2001:db8:100::1]:4000 > [2001:db8::1]:53 data 7ecc",
		"tcp [2001:db8:100::1]:4000 > [2001:db8::1]:80 A ext dst len 77",
	} {
		if err := throughTunnel(l, probe, mac, line); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
	}
	return nil
}

// addTunnel creates a VXLAN interface and attaches the program to it.
func addTunnel(l *lab.Lab) (net.HardwareAddr, error) {
	mac := net.HardwareAddr{2, 0, 0, 0, 3, 1}
	vxlan := &netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: "tunnel", HardwareAddr: mac}, VxlanId: 1, Port: 4789,
		SrcAddr: net.IPv4(198, 51, 100, 254), Learning: false,
	}
	if err := netlink.LinkAdd(vxlan); err != nil {
		return nil, fmt.Errorf("add tunnel: %w", err)
	}
	if err := netlink.LinkSetUp(vxlan); err != nil {
		return nil, fmt.Errorf("bring tunnel up: %w", err)
	}
	return mac, l.Datapath.Attach(datapath.Interface{Index: vxlan.Attrs().Index, Name: "tunnel"})
}

// throughTunnel sends a packet through the tunnel, and checks the packet that leaves towards the
// endpoint.
func throughTunnel(l *lab.Lab, probe *probe, mac net.HardwareAddr, line string) error {
	inner, err := pkt.Parse(line)
	if err != nil {
		return err
	}
	inner.Set(pkt.To, pkt.MAC(mac))
	outer, err := pkt.Parse(fmt.Sprintf("udp 198.51.100.1:5000 > 198.51.100.254:4789 data 0800000000000100%x", inner.Build()))
	if err != nil {
		return err
	}
	if err := l.Deliver(l.Client, l.Arriving(l.Client, outer).Build()); err != nil {
		return err
	}
	frame, err := waitForFrame(l)
	if err != nil {
		return err
	}
	change := pkt.New(inner.Proto).Set(pkt.Dst, pkt.Decode(frame).Value(pkt.Dst)).SetNum(pkt.DstPort, pkt.Decode(frame).Num(pkt.DstPort))
	want, err := l.Leaving(l.Server, inner, change, nil, nil)
	if err != nil {
		return err
	}
	if got := pkt.Decode(frame); string(want.Build()) != string(frame) {
		return fmt.Errorf("another packet:\n%s", pkt.Diff(pkt.Decode(want.Build()), got, nil))
	}
	return probe.check(frame)
}

// waitForFrame waits for the next TCP or UDP packet towards the endpoint: the tunnel forwards
// packets in a separate softirq.
func waitForFrame(l *lab.Lab) ([]byte, error) {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		frames, err := l.TakeSent(l.Server)
		if err != nil {
			return nil, err
		}
		for _, f := range frames {
			if p := pkt.Decode(f).Proto; p == pkt.TCP || p == pkt.UDP {
				return f, nil
			}
		}
	}
	drops, err := l.Counted()
	return nil, errors.Join(fmt.Errorf("nothing left towards the endpoint; drops: %q", drops), err)
}

// probe reads the sum of packets that leave through an interface.
type probe struct {
	sums *ebpf.Map
	prog *ebpf.Program
	link link.Link
}

func newProbe(ifindex int) (_ *probe, err error) {
	p := &probe{}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	p.sums, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("make probe's map: %w", err)
	}
	p.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			// adding nothing to the sum returns it, or an error unless it is CHECKSUM_COMPLETE
			asm.Mov.Imm(asm.R2, 0),
			asm.FnCsumUpdate.Call(),
			asm.StoreMem(asm.RFP, -8, asm.R0, asm.DWord),
			asm.StoreImm(asm.RFP, -12, 0, asm.Word),
			asm.LoadMapPtr(asm.R1, p.sums.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -12),
			asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -8),
			asm.Mov.Imm(asm.R4, 0),
			asm.FnMapUpdateElem.Call(),
			asm.Mov.Imm(asm.R0, -1), // passes to the device
			asm.Return(),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("load probe: %w", err)
	}
	p.link, err = link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: p.prog, Attach: ebpf.AttachTCXEgress})
	if err != nil {
		return nil, fmt.Errorf("attach probe: %w", err)
	}
	return p, nil
}

func (p *probe) Close() {
	if p.link != nil {
		p.link.Close()
	}
	p.prog.Close()
	p.sums.Close()
}

// check compares the sum with that of the frame.
func (p *probe) check(frame []byte) error {
	var got int64
	if err := p.sums.Lookup(uint32(0), &got); err != nil {
		return err
	}
	if got < 0 {
		return fmt.Errorf("the packet left without a complete checksum (%d), so this test checks nothing", got)
	}
	if len(frame)%2 != 0 {
		frame = append(frame[:len(frame):len(frame)], 0)
	}
	var want uint64
	for i := 0; i < len(frame); i += 2 {
		want += uint64(binary.NativeEndian.Uint16(frame[i:]))
	}
	if fold(want)%0xffff != fold(uint64(got))%0xffff {
		return fmt.Errorf("the packet's sum is %#x, but its metadata has %#x", fold(want), fold(uint64(got)))
	}
	return nil
}

func fold(sum uint64) uint64 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return sum
}
