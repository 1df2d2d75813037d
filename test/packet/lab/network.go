// Package lab runs the real program for packet scripts and the model test: in a new network
// namespace with two interfaces, into which the data path is loaded.
//
//	clients, behind a router          [ client ]  load balancer  [ server ]          endpoints
//	198.51.100.1, 2001:db8:1::1                                              192.168.1.10 and up
//	(the default route)                                                      2001:db8:2::10 and up
//
// The namespace belongs to the thread that creates it, and ends with this thread.
package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Endpoints of each family: hosts FirstEndpoint to FirstEndpoint+Endpoints-1 of the server's
// network.
const (
	FirstEndpoint = 10
	Endpoints     = 8
)

// Link is an interface of the load balancer.
type Link struct {
	Name  string
	Index int
	MAC   net.HardwareAddr
	fd    int    // of the tap
	buf   []byte // for one frame
}

// Network is the load balancer's namespace.
type Network struct {
	Client, Server *Link
	hops           map[netip.Addr]net.HardwareAddr // of the endpoints
}

// gateway is the MAC address of the router before the clients.
func gateway() net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 1, 2} }

// routers returns the router's addresses.
func routers() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8:1::1")}
}

// NewNetwork moves the calling thread into a new network namespace and creates the network in it.
// The caller must have called runtime.LockOSThread, and must never unlock the thread.
func NewNetwork() (*Network, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	n := &Network{hops: map[netip.Addr]net.HardwareAddr{}}
	if err := n.build(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Network) build() (err error) {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	for _, name := range []string{
		"net/ipv4/conf/lo/forwarding", "net/ipv6/conf/lo/forwarding",
	} {
		if err := Sysctl(name, "1"); err != nil {
			return err
		}
	}
	n.Client, err = newLink("client", net.HardwareAddr{2, 0, 0, 0, 1, 1}, "198.51.100.254/24", "2001:db8:1::fe/64")
	if err != nil {
		return err
	}
	n.Server, err = newLink("server", net.HardwareAddr{2, 0, 0, 0, 2, 1}, "192.168.1.254/24", "2001:db8:2::fe/64")
	if err != nil {
		return err
	}
	for _, addr := range routers() {
		if err := n.Client.neighbour(addr, gateway()); err != nil {
			return err
		}
		if err := n.Client.defaultRoute(addr); err != nil {
			return err
		}
	}
	for i := byte(FirstEndpoint); i < FirstEndpoint+Endpoints; i++ {
		v6 := netip.MustParseAddr("2001:db8:2::").As16()
		v6[15] = i/10<<4 | i%10 // 2001:db8:2::10 is read like 192.168.1.10
		for _, addr := range []netip.Addr{netip.AddrFrom4([4]byte{192, 168, 1, i}), netip.AddrFrom16(v6)} {
			n.hops[addr] = net.HardwareAddr{2, 0, 0, 0, 2, i/10<<4 | i%10}
			if err := n.Server.neighbour(addr, n.hops[addr]); err != nil {
				return err
			}
		}
	}
	return nil
}

// NextHop returns the destination MAC address of a packet to addr that leaves through the link.
func (n *Network) NextHop(l *Link, addr netip.Addr) net.HardwareAddr {
	if l == n.Client {
		return gateway()
	}
	return n.hops[addr]
}

// Link finds an interface by its name.
func (n *Network) Link(name string) (*Link, error) {
	for _, l := range []*Link{n.Client, n.Server} {
		if l.Name == name {
			return l, nil
		}
	}
	return nil, fmt.Errorf("interface %q: the lab has client and server", name)
}

// LinkOf returns the interface through which a frame has left, by the frame's source MAC address,
// or nil.
func (n *Network) LinkOf(frame []byte) *Link {
	for _, l := range []*Link{n.Client, n.Server} {
		if len(frame) >= 12 && string(frame[6:12]) == string(l.MAC) {
			return l
		}
	}
	return nil
}

// Close removes the interfaces.
func (n *Network) Close() error {
	var errs []error
	for _, l := range []*Link{n.Client, n.Server} {
		if l != nil {
			errs = append(errs, unix.Close(l.fd))
		}
	}
	return errors.Join(errs...)
}

// Sysctl writes a kernel setting of the namespace.
func Sysctl(name, value string) error {
	if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil {
		return fmt.Errorf("set %s to %s: %w", name, value, err)
	}
	return nil
}

// newLink creates a tap interface. It is up while its file is open, and needs no second namespace.
func newLink(name string, mac net.HardwareAddr, addresses ...string) (*Link, error) {
	fd, err := openTap(name)
	if err != nil {
		return nil, fmt.Errorf("make tap %s: %w", name, err)
	}
	l := &Link{Name: name, MAC: mac, fd: fd}
	if err := l.configure(addresses); err != nil {
		return nil, errors.Join(fmt.Errorf("set up %s: %w", name, err), unix.Close(fd))
	}
	return l, nil
}

func openTap(name string) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err == nil { // accept large packets and partial checksums, like a virtual machine's interface
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6|unix.TUN_F_TSO_ECN)
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

func (l *Link) configure(addresses []string) error {
	link, err := netlink.LinkByName(l.Name)
	if err != nil {
		return err
	}
	l.Index = link.Attrs().Index
	// Without duplicate address detection and router solicitations, the kernel sends no packets of
	// its own.
	if err := Sysctl("net/ipv6/conf/"+l.Name+"/accept_dad", "0"); err != nil {
		return err
	}
	if err := Sysctl("net/ipv6/conf/"+l.Name+"/router_solicitations", "0"); err != nil {
		return err
	}
	if err := netlink.LinkSetHardwareAddr(link, l.MAC); err != nil {
		return err
	}
	if err := netlink.LinkSetMTU(link, 9000); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	for _, a := range addresses {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	return nil
}

func (l *Link) neighbour(addr netip.Addr, mac net.HardwareAddr) error {
	err := netlink.NeighSet(&netlink.Neigh{
		LinkIndex: l.Index, IP: addr.AsSlice(), HardwareAddr: mac, State: netlink.NUD_PERMANENT,
	})
	if err != nil {
		return fmt.Errorf("neighbour %s: %w", addr, err)
	}
	return nil
}

func (l *Link) defaultRoute(via netip.Addr) error {
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: l.Index, Gw: via.AsSlice()}); err != nil {
		return fmt.Errorf("default route via %s: %w", via, err)
	}
	return nil
}
