package attach_test

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"loxilb/internal/kernel/datapath/attach"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// TestMayQueue checks that a queueing discipline and a program of another owner are noticed while
// an interface has them: the kernel reports neither as a change of the interface.
func TestMayQueue(t *testing.T) {
	t.Parallel()
	hooks := attach.New(nil, attach.HookAuto, nil)
	if hooks.Hook() != attach.HookTCX {
		t.Skip("the kernel has no tcx")
	}
	lab := labtest.New(t)
	one, err := lab.Host("one")
	if err != nil {
		t.Fatal(err)
	}
	two, err := lab.Host("two")
	if err != nil {
		t.Fatal(err)
	}
	if err := lab.Link(netnstest.End{Host: one, Interface: "eth0"}, netnstest.End{Host: two, Interface: "eth0"}, 0); err != nil {
		t.Fatal(err)
	}
	at, err := one.Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	index := at.Attrs().Index
	want := func(what string, want bool) {
		t.Helper()
		got := false
		if err := one.Do(func() error { got = hooks.MayQueue(index); return nil }); err != nil || got != want {
			t.Errorf("%s: got %v (%v), want %v", what, got, err, want)
		}
	}
	tc := func(args ...string) {
		t.Helper()
		if out, err := one.Run(append([]string{"tc", "qdisc"}, args...)...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}

	want("a new veth", true)
	tc("add", "dev", "eth0", "root", "pfifo")
	want("with a queueing discipline", false)
	tc("del", "dev", "eth0", "root")
	want("without it", true)
	tc("add", "dev", "eth0", "clsact")
	want("with clsact, without filters", true)

	var program link.Link
	if err := one.Do(func() (err error) { program, err = attachEgress(t, index); return err }); err != nil {
		t.Fatal(err)
	}
	want("with a program", false)
	if err := program.Close(); err != nil {
		t.Fatal(err)
	}
	want("without it", true)
}

// attachEgress attaches a program that passes all packets that leave by an interface.
func attachEgress(t *testing.T, index int) (link.Link, error) {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = p.Close() })
	return link.AttachTCX(link.TCXOptions{Interface: index, Program: p, Attach: ebpf.AttachTCXEgress})
}
