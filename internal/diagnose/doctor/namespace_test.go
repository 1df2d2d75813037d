package doctor

import (
	"errors"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestNamespace checks that faults of a real network namespace are found and fixed.
func TestNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the namespace ends with the thread
		done <- inNamespace(t)
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func inNamespace(t *testing.T) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "v0"}, PeerName: "v1"}
	if err := errors.Join(netlink.LinkAdd(veth), netlink.LinkSetUp(veth)); err != nil {
		return err
	}
	address, err := netlink.ParseAddr("20.20.20.1/24")
	if err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err := errors.Join(err, netlink.AddrAdd(veth, address)); err != nil {
		return err
	}
	single, _ := netlink.ParseAddr("20.20.20.1/32")
	if err := netlink.AddrAdd(lo, single); err != nil {
		return err
	}
	thread := "/proc/thread-self/net"
	if _, err := os.Stat(thread); err != nil {
		return err
	}
	m := Here(Facts{VIPs: []netip.Addr{vip}})
	links, err := m.Network.Links()
	if err != nil || len(links) != 3 {
		t.Errorf("got %v, %v, want no error, 3 elements in links", links, err)
	}
	list, err := duplicateVIPs(m)
	if err != nil || len(list) != 1 || list[0].About != "20.20.20.1" {
		t.Errorf(`got %+v, %v, want no error, 1 element, list[0].About == "20.20.20.1"`, list, err)
	}
	if err := m.Network.SetFeature("v0", gro, true); err != nil {
		return err
	}
	if on, known := m.Network.Feature("v0", gro); !on || !known {
		t.Error("GRO of v0 is not on")
	}
	if got, err := (setFeature{"v0", gro, false}).do(m); err != nil || !strings.Contains(got, "gro of v0") {
		t.Errorf(`got %s, %v, want no error, "gro of v0" in got`, got, err)
	}
	if on, _ := m.Network.Feature("v0", gro); on {
		t.Error("GRO of v0 is still on")
	}
	if _, err := m.Network.Route(netip.MustParseAddr("20.20.20.9")); err != nil {
		t.Error(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	six, _ := netlink.ParseAddr("2001:db8::1/128")
	if err := netlink.AddrAdd(lo, six); err != nil {
		return err
	}
	for _, to := range []netip.Addr{vip, netip.MustParseAddr("2001:db8::1")} {
		if answered, err := m.Network.Ping(to, smallPing, 70000, 1500); err != nil || !slices.Equal(answered, []bool{true, false, true}) {
			t.Errorf("ping %s: %v, %v", to, answered, err)
		}
	}
	if _, err := m.Network.Neighbours(); err != nil {
		t.Error(err)
	}
	return nil
}
