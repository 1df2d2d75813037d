package attach

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
)

// TestAgentBesideBalancer attaches an agent to an interface of a balancer without tcx: each has its
// own filter, and removes only that.
func TestAgentBesideBalancer(t *testing.T) {
	device := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "beside0"}, PeerName: "beside1"}
	if err := netlink.LinkAdd(device); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := netlink.LinkDel(device); err != nil {
			t.Error(err)
		}
	}()
	i := Interface{Index: device.Attrs().Index, Name: device.Name}
	want := func(when string, names ...string) {
		t.Helper()
		filters, err := netlink.FilterList(device, netlink.HANDLE_MIN_INGRESS)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range filters {
			got = append(got, f.(*netlink.BpfFilter).Name)
		}
		if !slices.Equal(got, names) {
			t.Errorf("%s, the filters are %q, want %q", when, got, names)
		}
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	balancer, err := balancing.attach(i.Index, ingress, program, &Exchange{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		agent, err := LoadDecap(DecapConfig{Port: 6080})
		if err != nil {
			t.Fatal(err)
		}
		if err := agent.Attach(i, HookClsact); err != nil {
			t.Fatal(err)
		}
		want("beside an agent", "loxilb-agent", "loxilb")
		if err := agent.Close(); err != nil {
			t.Error(err)
		}
		want("after the agent", "loxilb")
	}
	if err := balancer.Detach(); err != nil {
		t.Error(err)
	}
}
