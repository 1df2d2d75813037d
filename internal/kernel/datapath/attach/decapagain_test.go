package attach_test

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"loxilb/internal/kernel/datapath/attach"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// TestDecapAgain checks that the program is attached to an interface that was deleted and created
// again, and only once to the same.
func TestDecapAgain(t *testing.T) {
	t.Parallel()
	if attach.New(nil, attach.HookAuto, nil).Hook() != attach.HookTCX {
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
	d, err := attach.LoadDecap(attach.DecapConfig{VIPs: []netip.Addr{netip.MustParseAddr("20.20.20.1")}, Port: 6080})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil { // although the interface is gone
			t.Errorf("got %v, want no error", err)
		}
	}()
	for range 2 {
		if err := lab.Link(netnstest.End{Host: one, Interface: "eth0"}, netnstest.End{Host: two, Interface: "eth0"}, 0); err != nil {
			t.Fatal(err)
		}
		at, err := one.Netlink().LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		index, programs := at.Attrs().Index, 0
		err = one.Do(func() error {
			for range 2 {
				if err := d.Attach(attach.Interface{Index: index, Name: "eth0"}, attach.HookAuto); err != nil {
					return err
				}
			}
			r, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXIngress})
			if err == nil {
				programs = len(r.Programs)
			}
			return err
		})
		if err != nil || programs != 1 {
			t.Errorf("got %d programs, %v, want 1", programs, err)
		}
		if err := one.Netlink().LinkDel(at); err != nil {
			t.Fatal(err)
		}
	}
}
