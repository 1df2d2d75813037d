package netdev

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/netdev/netlink"
)

// TestGatewayReadOnly checks that tunnels are made where /proc/sys is read-only, as in containers.
func TestGatewayReadOnly(t *testing.T) {
	t.Parallel()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespaces
		done <- setReadOnly()
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func setReadOnly() error {
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND, ""),
		unix.Mount("", "/proc/sys", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""),
		nl.LinkAdd(&nl.Veth{LinkAttrs: nl.LinkAttrs{Name: "below", Flags: net.FlagUp}, PeerName: "peer"}),
		nl.LinkSetUp(&nl.Dummy{LinkAttrs: nl.LinkAttrs{Name: "lo"}}),
	); err != nil {
		return err
	}
	ns, err := netlink.OpenNamespace("")
	if err != nil {
		return err
	}
	defer ns.Close() //nolint:errcheck // only read
	g, err := openGateways(ns, "below")
	if err != nil {
		return err
	}
	defer g.Close()
	one := Gateway{Addr: netip.MustParseAddr("192.0.2.40"), Mark: FirstGatewayMark, Owned: true}
	if failed, err := g.Set([]Gateway{one}); err != nil || failed[one.Addr] != nil {
		return fmt.Errorf("%w; %w", err, failed[one.Addr])
	}
	got, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + one.tunnelName() + "/disable_ipv6")
	if err == nil && string(got) != "1\n" {
		err = fmt.Errorf("disable_ipv6 of the tunnel is %q", got)
	}
	return err
}
