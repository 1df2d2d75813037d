// Package objects makes, shows and removes users' network objects, a file for each kind. A ledger
// records the objects that it made; it leaves all others alone.
package objects

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"

	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/netdev/netlink"
	"loxilb/internal/lb/netobj"
)

// Kernel accesses the kernel's tables of one namespace. Its methods may be called from any
// goroutine.
type Kernel struct {
	ns   *netlink.Namespace
	nl   *nl.Handle
	life string // identifies this boot and this namespace

	mu   sync.Mutex
	conn *netlink.Conn // for requests that the library does not have
}

// Open opens the connection to the kernel.
func Open(ns *netlink.Namespace) (*Kernel, error) {
	k := &Kernel{ns: ns}
	err := ns.Do(func() (err error) {
		k.nl, err = nl.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	if k.life, err = lifeOf(ns); err == nil {
		k.conn, err = ns.Dial()
	}
	if err != nil {
		k.nl.Close()
		return nil, err
	}
	return k, nil
}

// Close closes the connection; objects stay.
func (k *Kernel) Close() {
	if k != nil {
		k.nl.Close()
		_ = k.conn.Close() // all was answered
	}
}

// lifeOf identifies the life of a namespace's objects.
func lifeOf(ns *netlink.Namespace) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("find this boot: %w", err)
	}
	var cookie uint64
	err = ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd) //nolint:errcheck // nothing was written
		cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("find the network namespace: %w", err)
	}
	return fmt.Sprintf("%s netns-%d", strings.TrimSpace(string(boot)), cookie), nil
}

// mac returns the MAC address of a new interface. It is the same each time, so neighbours need not
// learn a new one.
func (k *Kernel) mac(name string) net.HardwareAddr {
	sum := sha256.Sum256([]byte(k.life + " " + name))
	sum[0] = sum[0]&^1 | 2 // unicast, locally administered
	return sum[:len(netobj.MAC{})]
}

// HasDevice reports whether there is an interface of the name.
func (k *Kernel) HasDevice(name string) (bool, error) {
	_, err := k.index(name)
	if errors.As(err, new(*netobj.NoDeviceError)) {
		return false, nil
	}
	return err == nil, err
}

func (k *Kernel) link(name string) (nl.Link, error) {
	l, err := k.nl.LinkByName(name)
	if errors.As(err, new(nl.LinkNotFoundError)) {
		return nil, &netobj.NoDeviceError{Name: name}
	}
	return l, err
}

func (k *Kernel) index(name string) (int, error) {
	l, err := k.link(name)
	if err != nil {
		return 0, err
	}
	return l.Attrs().Index, nil
}

// dump repeats a read during which the kernel reports a change, a few times.
func dump[T any](read func() ([]T, error)) (list []T, err error) {
	for range 5 {
		if list, err = read(); !errors.Is(err, nl.ErrDumpInterrupted) {
			return list, err
		}
	}
	return list, nil // during continuous changes: an intermediate state
}

// links returns all interfaces by index.
func (k *Kernel) links() (map[int]nl.Link, error) {
	list, err := dump(k.nl.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	out := make(map[int]nl.Link, len(list))
	for _, l := range list {
		out[l.Attrs().Index] = l
	}
	return out, nil
}

func prefixOf(n *net.IPNet) netip.Prefix {
	a, _ := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), ones)
}

func netOf(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// absent treats a removal that found nothing as success.
func absent(err error, codes ...unix.Errno) error {
	for _, c := range append(codes, unix.ENODEV) {
		if errors.Is(err, c) {
			return nil
		}
	}
	if errors.As(err, new(*netobj.NoDeviceError)) {
		return nil
	}
	return err
}
