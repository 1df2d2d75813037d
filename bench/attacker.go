package main

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"

	"loxilb/test/netnstest"
)

// attacker is a host on its own link to the balancer, which routes all unknown addresses to it. It
// sends a flood and silently drops answers to its forged addresses. The link has a queue of its
// own, as with several network cards, so the flood does not displace packets of clients.
type attacker struct {
	*netnstest.Host
	rig     *rig
	answers *sink
}

// attackerNetwork returns the attacker's link; the balancer's interface to it has its name.
func attackerNetwork() netnstest.Network {
	return netnstest.Network{
		Host: "attacker",
		V4:   netip.MustParsePrefix("66.66.66.1/24"), GW4: netip.MustParseAddr("66.66.66.254"),
		V6: netip.MustParsePrefix("2001:db8:66::1/64"), GW6: netip.MustParseAddr("2001:db8:66::fe"),
	}
}

// addAttacker connects the attacker to the balancer, and assigns the client all of its addresses.
func (r *rig) addAttacker() error {
	n := attackerNetwork()
	h, err := r.Host(n.Host)
	if err != nil {
		return err
	}
	err = r.Link(netnstest.End{Host: h, Interface: "eth0", Addresses: []netip.Prefix{n.V4, n.V6}},
		netnstest.End{Host: r.LB, Interface: n.Host, Addresses: []netip.Prefix{netip.PrefixFrom(n.GW4, 24), netip.PrefixFrom(n.GW6, 64)}}, 0)
	if err != nil {
		return err
	}
	a := &attacker{Host: h, rig: r}
	for prefix, via := range map[netip.Prefix]netip.Addr{
		netip.PrefixFrom(netip.IPv4Unspecified(), 0): n.V4.Addr(),
		netip.PrefixFrom(netip.IPv6Unspecified(), 0): n.V6.Addr(),
	} {
		if err := r.LB.AddRoute(prefix, via); err != nil {
			return err
		}
		if err := a.addNeighbor(via); err != nil {
			return err
		}
	}
	if _, err := r.LB.Run("ethtool", "-K", n.Host, "gro", "on"); err != nil {
		return err
	}
	if a.answers, err = newSilence(h); err != nil {
		return err
	}
	r.Cleanup(func() { _ = a.answers.close() })
	r.attacker = a
	return r.addClients()
}

// addNeighbor writes the attacker's MAC address to the balancer's neighbour table, since the
// attacker answers no ARP requests.
func (a *attacker) addNeighbor(address netip.Addr) error {
	mac, err := a.MAC("eth0")
	if err != nil {
		return err
	}
	link, err := a.rig.LB.Netlink().LinkByName(a.Name)
	if err != nil {
		return err
	}
	err = a.rig.LB.Netlink().NeighSet(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, IP: address.AsSlice(), HardwareAddr: mac, State: netlink.NUD_PERMANENT,
	})
	if err != nil {
		return fmt.Errorf("add neighbour %v to the balancer: %w", address, err)
	}
	return nil
}

// addClients routes the networks of client addresses to the client.
func (r *rig) addClients() error {
	if err := r.Client.Sysctl("net/ipv6/ip_nonlocal_bind", "1"); err != nil { // IPv6 sockets cannot bind to them otherwise
		return err
	}
	n := netnstest.StandardNetworks()[0]
	for many, via := range map[netip.Prefix]netip.Addr{manyV4(): n.V4.Addr(), manyV6(): n.V6.Addr()} {
		if _, err := r.Client.Run("ip", "route", "add", "local", many.String(), "dev", "lo"); err != nil {
			return err
		}
		if err := r.LB.AddRoute(many, via); err != nil {
			return err
		}
	}
	return nil
}

// target returns the destination of the attacker's packets.
func (a *attacker) target(s service, to netip.AddrPort) (t target, err error) {
	t = target{address: to, udp: uint16(s.udp)}
	if t.from, err = a.MAC("eth0"); err != nil {
		return t, err
	}
	t.to, err = a.rig.LB.MAC(a.Name)
	return t, err
}

// readReceived returns how many of the attacker's packets the balancer's interface received.
func (a *attacker) readReceived() (uint64, error) {
	link, err := a.rig.LB.Netlink().LinkByName(a.Name)
	if err != nil {
		return 0, fmt.Errorf("find the interface to the attacker: %w", err)
	}
	return link.Attrs().Statistics.RxPackets, nil
}

// chunk is the number of frames sent at a time: a few hundredths of a second.
const chunk = 20_000

// flood sends packets for a while, and returns the rates of sent and received packets per second.
func (a *attacker) flood(g *generator, d time.Duration) (sent, received float64, err error) {
	before, err := a.readReceived()
	if err != nil {
		return 0, 0, err
	}
	start, frames := time.Now(), 0
	for time.Since(start) < d {
		if _, err := g.send(chunk); err != nil {
			return 0, 0, err
		}
		frames += chunk
	}
	seconds := time.Since(start).Seconds()
	after, err := a.readReceived()
	return float64(frames) / seconds, float64(after-before) / seconds, err
}
