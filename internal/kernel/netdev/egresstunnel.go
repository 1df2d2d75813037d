package netdev

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"

	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/netdev/netlink"
)

// vxlanPort is the UDP port of VXLAN.
const vxlanPort = 4789

// syncTunnels makes the tunnels to gateways, and removes tunnels to other addresses. It returns the
// failing gateways; err concerns all of them.
func (g *Gateways) syncTunnels(list []Gateway) (failed map[netip.Addr]error, err error) {
	failed = map[netip.Addr]error{}
	all, err := dump(g.nl.LinkList)
	if err != nil {
		return failed, fmt.Errorf("list interfaces: %w", err)
	}
	links := make(map[string]nl.Link, len(all))
	for _, l := range all {
		links[l.Attrs().Name] = l
	}
	var errs []error
	wanted := map[string]bool{}
	for _, one := range list {
		name := one.tunnelName()
		if one.collides {
			failed[one.Addr] = fmt.Errorf("another gateway has the same tunnel, %s; choose another address", name)
			continue
		}
		wanted[name] = true
		if err := g.syncTunnel(one, links[g.underlay], links[name]); err != nil {
			failed[one.Addr] = err
		}
	}
	for _, l := range all {
		t, is := l.(*nl.Vxlan)
		if is && !wanted[t.Name] && t.Port == vxlanPort && t.Name == tunnelNameOf(uint32(t.VxlanId)) {
			if err := g.nl.LinkDel(l); err != nil {
				errs = append(errs, fmt.Errorf("remove tunnel %s: %w", t.Name, err))
			}
		}
	}
	return failed, errors.Join(errs...)
}

// syncTunnel makes the tunnel to a gateway over the underlay. have is the existing interface with
// the tunnel's name, or nil.
func (g *Gateways) syncTunnel(one Gateway, underlay, have nl.Link) error {
	if underlay == nil {
		return fmt.Errorf("--clusterinterface: unknown interface %q", g.underlay)
	}
	wanted := &nl.Vxlan{
		LinkAttrs: nl.LinkAttrs{Name: one.tunnelName(), HardwareAddr: one.mac(underlay.Attrs().HardwareAddr), MTU: one.mtu(underlay.Attrs().MTU)},
		VxlanId:   int(one.tunnelNumber()), VtepDevIndex: underlay.Attrs().Index, Group: one.Addr.AsSlice(), Port: vxlanPort,
	}
	if have != nil && !sameTunnel(wanted, have) {
		if err := g.nl.LinkDel(have); err != nil {
			return fmt.Errorf("remove the tunnel over another interface: %w", err)
		}
		have = nil
	}
	if have == nil {
		if err := g.makeTunnel(one, wanted); err != nil {
			return fmt.Errorf("make tunnel %s over %s: %w", wanted.Name, g.underlay, err)
		}
		have = wanted
	} else if err := g.changeTunnel(have, wanted); err != nil {
		return fmt.Errorf("change tunnel %s: %w", wanted.Name, err)
	}
	if have.Attrs().Flags&net.FlagUp == 0 {
		if err := g.nl.LinkSetUp(have); err != nil {
			return fmt.Errorf("set tunnel %s up: %w", wanted.Name, err)
		}
	}
	return g.addTunnelRoute(one, have.Attrs().Index)
}

// sameTunnel reports whether an interface is this tunnel, with any MAC address and MTU.
func sameTunnel(wanted *nl.Vxlan, have nl.Link) bool {
	t, is := have.(*nl.Vxlan)
	return is && t.VxlanId == wanted.VxlanId && t.VtepDevIndex == wanted.VtepDevIndex && t.Port == wanted.Port && t.Group.Equal(wanted.Group)
}

// makeTunnel makes the tunnel's interface and sets wanted.Index. If it fails, it leaves none.
func (g *Gateways) makeTunnel(one Gateway, wanted *nl.Vxlan) error {
	if err := g.nl.LinkAdd(wanted); err != nil {
		return err
	}
	link, err := g.nl.LinkByName(wanted.Name)
	if err != nil {
		return err
	}
	wanted.Index = link.Attrs().Index
	if err := g.restrictIPv6(one, wanted.Name); err != nil {
		return errors.Join(err, g.nl.LinkDel(link))
	}
	return nil
}

// restrictIPv6 protects this node from frames of the tunnel, which anyone may send: they must not
// configure IPv6 addresses and routes, nor reach this node by IPv6 at an IPv4 gateway.
func (g *Gateways) restrictIPv6(one Gateway, name string) error {
	settings := map[string]int{"disable_ipv6": 1}
	if one.Addr.Is6() {
		settings = map[string]int{"accept_ra": 0, "addr_gen_mode": 1}
	}
	for setting, value := range settings {
		err := g.ns.SetSysctl("ipv6/conf/"+name+"/"+setting, value)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // the kernel has no IPv6
			return err
		}
	}
	return nil
}

// changeTunnel sets the MAC address and the MTU of a tunnel's interface.
func (g *Gateways) changeTunnel(have nl.Link, wanted *nl.Vxlan) error {
	var errs []error
	if have.Attrs().HardwareAddr.String() != wanted.HardwareAddr.String() {
		errs = append(errs, g.nl.LinkSetHardwareAddr(have, wanted.HardwareAddr))
	}
	if have.Attrs().MTU != wanted.MTU {
		errs = append(errs, g.nl.LinkSetMTU(have, wanted.MTU))
	}
	return errors.Join(errs...)
}

// addTunnelRoute makes the route into the tunnel: a separate table, whose router is a permanent
// neighbour with the MAC address of every owner. An existing route stays: replacing it would notify
// all subscribers of routes.
func (g *Gateways) addTunnelRoute(one Gateway, index int) error {
	router := one.router()
	neighbour := &nl.Neigh{
		LinkIndex: index, IP: router.AsSlice(), HardwareAddr: ownerMAC(one.tunnelNumber()), State: unix.NUD_PERMANENT,
	}
	if err := g.nl.NeighSet(neighbour); err != nil {
		return fmt.Errorf("make the neighbour of tunnel %s: %w", one.tunnelName(), err)
	}
	route := &nl.Route{
		LinkIndex: index, Table: int(one.tunnelNumber()), Gw: router.AsSlice(), Dst: defaultPrefix(router),
		Flags: int(nl.FLAG_ONLINK), Protocol: nl.RouteProtocol(netlink.OwnProtocol),
	}
	if err := g.nl.RouteAdd(route); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make the route into tunnel %s: %w", one.tunnelName(), err)
	}
	return nil
}
