package netnstest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// upPatience limits how long an interface may take to send packets after it is set up.
const upPatience = 10 * time.Second

// End is one end of a link.
type End struct {
	Host      *Host
	Interface string
	MAC       net.HardwareAddr // nil: the kernel chooses
	Addresses []netip.Prefix
}

// Link joins two hosts by a veth pair, sets both ends up and gives them their addresses. An MTU of
// 0 means 1500.
func (l *Lab) Link(a, b End, mtu int) error {
	if mtu == 0 {
		mtu = 1500
	}
	veth := &netlink.Veth{
		LinkAttrs:        netlink.NewLinkAttrs(),
		PeerName:         b.Interface,
		PeerHardwareAddr: b.MAC,
		PeerNamespace:    netlink.NsFd(b.Host.ns),
		PeerMTU:          uint32(mtu),
	}
	veth.Name, veth.MTU, veth.HardwareAddr = a.Interface, mtu, a.MAC
	if err := a.Host.nl.LinkAdd(veth); err != nil {
		return fmt.Errorf("link %s/%s to %s/%s: %w", a.Host.Name, a.Interface, b.Host.Name, b.Interface, err)
	}
	for _, e := range []End{a, b} {
		for _, address := range e.Addresses {
			if err := e.Host.AddAddress(e.Interface, address); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(a.Host.Up(a.Interface), b.Host.Up(b.Interface)); err != nil {
		return err
	}
	return errors.Join(a.Host.waitUp(a.Interface), b.Host.waitUp(b.Interface))
}

// waitUp waits until an interface that is set up sends packets. The kernel reacts to a new carrier
// with a delay of up to a second, and drops packets until then, such as the first ARP request.
func (h *Host) waitUp(name string) error {
	for deadline := time.Now().Add(upPatience); ; time.Sleep(time.Millisecond) {
		link, err := h.nl.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find %s in %s: %w", name, h.Name, err)
		}
		if link.Attrs().OperState == netlink.OperUp {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s in %s is not up but %v after %v", name, h.Name, link.Attrs().OperState, upPatience)
		}
	}
}

// Up sets an interface up.
func (h *Host) Up(name string) error {
	link, err := h.nl.LinkByName(name)
	if err == nil {
		err = h.nl.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("set %s up in %s: %w", name, h.Name, err)
	}
	return nil
}

// AddAddress adds an address to an interface, without duplicate address detection.
func (h *Host) AddAddress(name string, address netip.Prefix) error {
	link, err := h.nl.LinkByName(name)
	if err == nil {
		err = h.nl.AddrReplace(link, &netlink.Addr{IPNet: ipNet(address), Flags: unix.IFA_F_NODAD})
	}
	if err != nil {
		return fmt.Errorf("add address %v to %s in %s: %w", address, name, h.Name, err)
	}
	return nil
}

// DelAddress removes an address from an interface.
func (h *Host) DelAddress(name string, address netip.Prefix) error {
	link, err := h.nl.LinkByName(name)
	if err == nil {
		err = h.nl.AddrDel(link, &netlink.Addr{IPNet: ipNet(address)})
	}
	if err != nil {
		return fmt.Errorf("remove address %v from %s in %s: %w", address, name, h.Name, err)
	}
	return nil
}

// AddRoute adds a route to a prefix over a gateway, or replaces it.
func (h *Host) AddRoute(to netip.Prefix, via netip.Addr) error {
	err := h.nl.RouteReplace(&netlink.Route{Dst: ipNet(to), Gw: via.AsSlice()})
	if err != nil {
		return fmt.Errorf("add route %v via %v in %s: %w", to, via, h.Name, err)
	}
	return nil
}

// MAC returns the link-layer address of an interface.
func (h *Host) MAC(name string) (net.HardwareAddr, error) {
	link, err := h.nl.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find %s in %s: %w", name, h.Name, err)
	}
	return link.Attrs().HardwareAddr, nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
