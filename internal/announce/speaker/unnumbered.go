package speaker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"loxilb/internal/host/monotime"
	"loxilb/internal/lb/bgp"
)

// Types of ICMPv6 (RFC 4861).
const (
	routerSolicitation  = 133
	routerAdvertisement = 134
	sourceLinkLayer     = 1 // option
)

// solicitTime is the time between messages on links with unnumbered neighbors.
const solicitTime = time.Second

// advertiseTime is the same once the session is established: FRR looks up its neighbors by router
// advertisements.
const advertiseTime = 10 * time.Second

// routerOnLink returns the link-local address of the router on a link, from the kernel's neighbors.
func routerOnLink(link string) (netip.Addr, error) {
	i, err := net.InterfaceByName(link)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("interface %s: %w", link, err)
	}
	neighbors, err := netlink.NeighList(i.Index, unix.AF_INET6)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("neighbors on %s: %w", link, err)
	}
	var found []netip.Addr
	for i := range neighbors {
		n := &neighbors[i]
		a, ok := netip.AddrFromSlice(n.IP)
		if ok && a.IsLinkLocalUnicast() && n.Flags&netlink.NTF_ROUTER != 0 && n.State&(netlink.NUD_FAILED|netlink.NUD_INCOMPLETE) == 0 {
			found = append(found, a.WithZone(link))
		}
	}
	switch len(found) {
	case 0:
		return netip.Addr{}, fmt.Errorf("no router has been seen on %s; it must send router advertisements", link)
	case 1:
		return found[0], nil
	}
	return netip.Addr{}, fmt.Errorf("several routers are on %s: %v; use their addresses", link, found)
}

// solicit makes this node and the routers on a link known to each other: it solicits their
// advertisements, and sends an advertisement without routes.
func solicit(link string) error {
	i, err := net.InterfaceByName(link)
	if err != nil {
		return fmt.Errorf("interface %s: %w", link, err)
	}
	source, err := linkLocal(i)
	if err != nil {
		return err
	}
	c, err := new(net.ListenConfig).ListenPacket(context.Background(), "ip6:ipv6-icmp", source.String())
	if err != nil {
		return fmt.Errorf("open an ICMPv6 socket on %s: %w", link, err)
	}
	defer c.Close() //nolint:errcheck // nothing is buffered
	p := ipv6.NewPacketConn(c)
	option := append([]byte{sourceLinkLayer, 1}, i.HardwareAddr...)
	if len(i.HardwareAddr) != 6 {
		option = nil
	}
	solicitation := append([]byte{routerSolicitation, 0, 0, 0, 0, 0, 0, 0}, option...)
	// A lifetime of 0: this node is not a default router.
	advertisement := append([]byte{routerAdvertisement, 15: 0}, option...)
	advertisement[4] = 64 // hop limit that hosts may use
	return errors.Join(
		p.SetMulticastHopLimit(255),
		p.SetMulticastInterface(i),
		p.SetMulticastLoopback(false), // the kernel would take this node for a router on the link
		send(p, i, netip.IPv6LinkLocalAllRouters(), solicitation),
		send(p, i, netip.IPv6LinkLocalAllNodes(), advertisement))
}

func send(p *ipv6.PacketConn, i *net.Interface, to netip.Addr, message []byte) error {
	_, err := p.WriteTo(message, nil, &net.IPAddr{IP: to.AsSlice(), Zone: i.Name})
	return err
}

// linkLocal returns the link-local address of an interface.
func linkLocal(i *net.Interface) (netip.Addr, error) {
	addrs, err := i.Addrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("addresses of %s: %w", i.Name, err)
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
			return p.Addr().WithZone(i.Name), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s has no link-local address; is IPv6 off?", i.Name)
}

// findRouters keeps unnumbered neighbors known, until ctx ends.
func (e *engine) findRouters(ctx context.Context) {
	advertised := map[string]time.Time{}
	for ctx.Err() == nil {
		for link, established := range e.unnumbered() {
			if established && time.Since(advertised[link]) < advertiseTime {
				continue
			}
			advertised[link] = time.Now()
			if err := solicit(link); err != nil {
				e.log.Debug("router on a link cannot be solicited", "link", link, "error", err)
			}
		}
		monotime.Sleep(ctx, solicitTime)
	}
}

// unnumbered returns the links of unnumbered neighbors, and whether their sessions are established.
func (e *engine) unnumbered() map[string]bool {
	e.owner.mu.Lock()
	defer e.owner.mu.Unlock()
	links := map[string]bool{}
	if e.owner.engine != e {
		return links
	}
	for k, n := range e.owner.wanted.neighbors {
		p := e.peers[k]
		if !n.Addr.IsValid() {
			links[n.Interface] = p != nil && p.status.established
		}
		if p != nil && !p.status.established && p.mustReadd() {
			e.logUnchanged(p, e.deletePeer(p))
			e.owner.requestRetry()
		}
	}
	return links
}

// linkLocalAddr is the interface of a link-local neighbor, and this node's address there. gobgp
// keeps both as they were when the neighbor was added.
type linkLocalAddr struct {
	index int
	local netip.Addr
}

// linkLocalOf returns the interface and local address for a neighbor; zero: it is not link-local.
func linkLocalOf(addr netip.Addr) (linkLocalAddr, error) {
	if addr.Zone() == "" {
		return linkLocalAddr{}, nil
	}
	i, err := net.InterfaceByName(addr.Zone())
	if err != nil {
		return linkLocalAddr{}, fmt.Errorf("interface %s: %w", addr.Zone(), err)
	}
	local, err := linkLocal(i)
	if err != nil {
		return linkLocalAddr{}, err
	}
	forgetZones()
	return linkLocalAddr{i.Index, local}, nil
}

// mustReadd reports whether a link-local neighbor must be added again: the router has another
// address, or the interface was made again.
func (p *peer) mustReadd() bool {
	addr, err := netip.ParseAddr(p.addr)
	if err != nil || addr.Zone() == "" {
		return false
	}
	if !p.config.Addr.IsValid() {
		if addr, err = routerOnLink(p.config.Interface); err != nil {
			return false
		}
	}
	on, err := linkLocalOf(addr)
	return err == nil && (addr.String() != p.addr || on != p.linkLocal)
}

// forgetZones makes the package net read the numbers of interfaces again. It keeps them for a
// minute, and connections by an interface that was made again would fail for so long; a name that
// it does not know makes it read all.
func forgetZones() {
	unknown := &net.UDPAddr{IP: net.IPv6linklocalallnodes, Port: bgp.DefaultPort, Zone: "/"} // no interface has this name
	if c, err := net.DialUDP("udp6", nil, unknown); err == nil {
		c.Close() //nolint:errcheck // nothing was sent
	}
}
