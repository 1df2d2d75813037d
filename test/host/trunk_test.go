package host

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// tag makes a side's tap use one VLAN for IPv6 and one for all other packets. It adds the tag to
// sent frames, removes it from received ones, and drops frames without the tag. It uses BPF, since
// this machine's kernel may lack VLAN interfaces.
func (n *network) tag(s side) {
	n.t.Helper()
	const protocol, vlanPresent, vlanTCI = 16, 20, 24 // struct __sk_buff
	const ipv6 = 0xdd86                               // in network order
	programs := map[ebpf.AttachType]asm.Instructions{
		ebpf.AttachTCXEgress: {
			asm.Mov.Imm(asm.R2, 0x0081), // 802.1Q, in network order
			asm.LoadMem(asm.R0, asm.R1, protocol, asm.Word),
			asm.Mov.Imm(asm.R3, int32(s.tag6)),
			asm.JEq.Imm(asm.R0, ipv6, "push"),
			asm.Mov.Imm(asm.R3, int32(s.tag4)),
			asm.FnSkbVlanPush.Call().WithSymbol("push"),
			asm.Mov.Imm(asm.R0, 0), // TCX_PASS
			asm.Return(),
		},
		ebpf.AttachTCXIngress: {
			asm.LoadMem(asm.R2, asm.R1, vlanPresent, asm.Word),
			asm.JEq.Imm(asm.R2, 0, "drop"),
			asm.LoadMem(asm.R2, asm.R1, vlanTCI, asm.Word),
			asm.And.Imm(asm.R2, 0xfff),
			asm.LoadMem(asm.R0, asm.R1, protocol, asm.Word),
			asm.Mov.Imm(asm.R3, int32(s.tag6)),
			asm.JEq.Imm(asm.R0, ipv6, "pop"),
			asm.Mov.Imm(asm.R3, int32(s.tag4)),
			asm.JNE.Reg(asm.R2, asm.R3, "drop").WithSymbol("pop"),
			asm.FnSkbVlanPop.Call(),
			asm.Mov.Imm(asm.R0, -1), // TCX_NEXT: the agent of tunnels
			asm.Return(),
			asm.Mov.Imm(asm.R0, 2).WithSymbol("drop"), // TCX_DROP
			asm.Return(),
		},
	}
	tap, err := s.host.Netlink().LinkByName(s.card)
	if err != nil {
		n.t.Fatal(err)
	}
	for where, instructions := range programs {
		program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: instructions})
		if err != nil {
			n.t.Fatal(err)
		}
		defer program.Close()
		err = s.host.Do(func() error {
			l, err := link.AttachTCX(link.TCXOptions{Interface: tap.Attrs().Index, Program: program, Attach: where, Anchor: link.Head()})
			n.tags = append(n.tags, l)
			return err
		})
		if err != nil {
			n.t.Fatal(err)
		}
	}
}
