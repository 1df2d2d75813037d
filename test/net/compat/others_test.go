package compat_test

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// counter is a tc program that counts packets and passes them to the next program.
type counter struct {
	t       testing.TB
	program *ebpf.Program
	packets *ebpf.Map
}

func newCounter(t testing.TB) *counter {
	t.Helper()
	packets, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = packets.Close() })
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.StoreImm(asm.R10, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, packets.FD()),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "next"),
		asm.Mov.Imm(asm.R1, 1),
		asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("next"), // TCX_NEXT, TC_ACT_UNSPEC
		asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return &counter{t, program, packets}
}

func (c *counter) count() (n uint64) {
	c.t.Helper()
	if err := c.packets.Lookup(uint32(0), &n); err != nil {
		c.t.Fatal(err)
	}
	return n
}

// attachTCX attaches the program to an interface's ingress hook, after the attached programs.
func (c *counter) attachTCX(h *netnstest.Host, name string) {
	c.t.Helper()
	c.attach(h, name, func(index int) error {
		l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: c.program, Attach: ebpf.AttachTCXIngress})
		if err == nil {
			c.t.Cleanup(func() { _ = l.Close() })
		}
		return err
	})
}

// attachFilter attaches the program to the clsact of an interface, which it creates if needed.
func (c *counter) attachFilter(h *netnstest.Host, name string, priority uint16) {
	c.t.Helper()
	c.attach(h, name, func(index int) error {
		clsact := &netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
		if err := netlink.QdiscReplace(clsact); err != nil {
			return err
		}
		return netlink.FilterAdd(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: priority, Protocol: unix.ETH_P_ALL},
			Fd:          c.program.FD(), Name: "counter", DirectAction: true,
		})
	})
}

func (c *counter) attach(h *netnstest.Host, name string, f func(index int) error) {
	c.t.Helper()
	at, err := h.Netlink().LinkByName(name)
	if err == nil {
		err = h.Do(func() error { return f(at.Attrs().Index) })
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// TestOtherPrograms checks that other programs at the same hook get packets while loxilb's program
// is attached, adopted and detached. A program before it gets all packets. A program after it gets
// the packets that loxilb does not balance.
//
// P34 Other programs at a hook work while loxilb's program is attached, replaced and detached
func TestOtherPrograms(t *testing.T) {
	t.Parallel()
	for _, hook := range []string{"tcx", "clsact"} {
		t.Run(hook, func(t *testing.T) {
			t.Parallel()
			first, last := newCounter(t), newCounter(t)
			r := rig.New(t, rig.Options{Args: []string{"--attach", hook}, Before: func(_ testing.TB, s *netnstest.Standard) {
				if hook == "tcx" {
					first.attachTCX(s.LB, "client")
				}
			}})
			if hook == "tcx" {
				last.attachTCX(r.LB, "client")
			} else { // also ours: within a priority, the kernel calls the newest filter first
				first.attachFilter(r.LB, "client", 1)
				last.attachFilter(r.LB, "client", 2)
			}
			r.ServeNames()
			r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=31.31.31.1:1", rig.VIP4)
			check := func(balanced bool) {
				t.Helper()
				was, wasLast := first.count(), last.count()
				if balanced {
					r.WantAnswers(rig.Join(rig.VIP4, 80), "ep1", "ep1")
				}
				if seen := first.count() - was; balanced && seen < 8 {
					t.Errorf("the program before loxilb's has seen only %d packets of two connections", seen)
				}
				if seen := last.count() - wasLast; seen > 4 { // some ARP requests
					t.Errorf("the program after loxilb's has seen %d balanced packets", seen)
				}
				was, wasLast = first.count(), last.count()
				rig.MustRun(t, r.Client, "ping", "-c3", "-i0.01", "100.100.100.254")
				if a, b := first.count()-was, last.count()-wasLast; a < 3 || b < 3 {
					t.Errorf("of three echo requests, the program before loxilb's has seen %d, the one after it %d", a, b)
				}
			}
			check(true)
			r.Kill()
			check(true)
			r.Restart()
			check(true)
			r.Stop()
			r.Restart()
			check(true)
			if err := r.DetachAll(); err != nil {
				t.Fatal(err)
			}
			check(false)
		})
	}
}
