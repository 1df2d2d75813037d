package rig

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"loxilb/test/netnstest"
)

// hosts are the hosts of a cluster that run Kubernetes.
type hosts struct {
	controlPlane *netnstest.Host
	nodes        []*netnstest.Host
}

// buildNetwork creates the hosts and networks of a cluster.
func (c *Cluster) buildNetwork(lab *netnstest.Lab) (hosts, error) {
	made := map[string]*netnstest.Host{}
	for _, name := range []string{"switch", "cp", "n1", "n2", "lan", "router", "outside"} {
		host, err := lab.Host(name)
		if err != nil {
			return hosts{}, err
		}
		made[name] = host
	}
	c.LAN, c.Router, c.Outside, c.fabric = made["lan"], made["router"], made["outside"], made["switch"]
	h := hosts{controlPlane: made["cp"], nodes: []*netnstest.Host{made["n1"], made["n2"]}}

	if err := addBridge(made["switch"], "br0"); err != nil {
		return hosts{}, err
	}
	for _, e := range []struct {
		host    *netnstest.Host
		address string
	}{{made["cp"], controlPlaneAddress}, {made["n1"], fmt.Sprintf(nodeAddress, 1)}, {made["n2"], fmt.Sprintf(nodeAddress, 2)}, {c.LAN, lanAddress}, {c.Router, routerAddress}} {
		if err := plugIn(lab, made["switch"], e.host, e.address); err != nil {
			return hosts{}, err
		}
	}
	err := lab.Link(
		netnstest.End{Host: c.Router, Interface: "eth1", Addresses: dualStack(routerOutside)},
		netnstest.End{Host: c.Outside, Interface: "eth0", Addresses: dualStack(outsideAddress)}, 0)
	if err != nil {
		return hosts{}, err
	}
	return h, errors.Join(c.addAllRoutes(made), enableForwarding(made["n1"], made["n2"], c.Router))
}

// AddHost adds a host to the nodes' network. Like a node, it has routes to pods and forwards
// packets.
func (c *Cluster) AddHost(name, address string) (*netnstest.Host, error) {
	host, err := c.lab.Host(name)
	if err != nil {
		return nil, err
	}
	if err := plugIn(c.lab, c.fabric, host, address); err != nil {
		return nil, err
	}
	err = errors.Join(enableForwarding(host), addRoutes(host, defaultRoutes(), routerAddress))
	for i := 1; i <= 2; i++ {
		err = errors.Join(err, addRoutes(host, podNetworksOf(i), fmt.Sprintf(nodeAddress, i)))
	}
	return host, err
}

// defaultRoutes returns the destinations of default routes.
func defaultRoutes() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
}

// addAllRoutes adds default routes by the router, and routes to pods by their nodes.
func (c *Cluster) addAllRoutes(made map[string]*netnstest.Host) (err error) {
	for name, gateway := range map[string]string{"cp": routerAddress, "n1": routerAddress, "n2": routerAddress, "lan": routerAddress, "outside": routerOutside} {
		err = errors.Join(err, addRoutes(made[name], defaultRoutes(), gateway))
	}
	for _, name := range []string{"cp", "n1", "n2", "lan", "router"} {
		for i := 1; i <= 2; i++ {
			if name != fmt.Sprintf("n%d", i) {
				err = errors.Join(err, addRoutes(made[name], podNetworksOf(i), fmt.Sprintf(nodeAddress, i)))
			}
		}
	}
	for _, services := range []string{"10.96.0.0/16", "fd00:96::/112"} { // for webhooks, which the apiserver calls
		to := netip.MustParsePrefix(services)
		err = errors.Join(err, made["cp"].AddRoute(to, sameFamily(to, fmt.Sprintf(nodeAddress, 1))))
	}
	return err
}

// addRoutes adds routes by a gateway, or by its IPv6 counterpart.
func addRoutes(host *netnstest.Host, to []netip.Prefix, gateway string) (err error) {
	for _, p := range to {
		err = errors.Join(err, host.AddRoute(p, sameFamily(p, gateway)))
	}
	return err
}

// podNetworksOf returns the pod networks of a node.
func podNetworksOf(node int) []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", node)),
		netip.MustParsePrefix(fmt.Sprintf("fd00:244:0:%d::/64", node)),
	}
}

// sameFamily returns an address, or its IPv6 counterpart for an IPv6 prefix.
func sameFamily(p netip.Prefix, address string) netip.Addr {
	if p.Addr().Is4() {
		return netip.MustParseAddr(address)
	}
	return v6(address)
}

// v6 returns the IPv6 counterpart of an address of the rig: fd77::15 for 10.77.0.21.
func v6(address string) netip.Addr {
	b := netip.MustParseAddr(address).As4()
	return netip.AddrFrom16([16]byte{0xfd, bcd(b[1]), 14: b[2], 15: b[3]})
}

// bcd returns the number whose hexadecimal digits are the decimal digits of n, so that networks of
// both families look alike.
func bcd(n byte) byte { return n/10<<4 | n%10 }

// both returns an address and its IPv6 counterpart, with their prefix lengths.
func dualStack(address string) []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(address), 24), netip.PrefixFrom(v6(address), 64)}
}

// enableForwarding makes hosts forward packets.
func enableForwarding(routers ...*netnstest.Host) (err error) {
	for _, host := range routers {
		err = errors.Join(err, host.Sysctl("net/ipv4/ip_forward", "1"), host.Sysctl("net/ipv6/conf/all/forwarding", "1"))
	}
	return err
}

// addBridge adds a bridge to a host.
func addBridge(host *netnstest.Host, name string) error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = name
	if err := host.Netlink().LinkAdd(&netlink.Bridge{LinkAttrs: attributes}); err != nil {
		return fmt.Errorf("add bridge %s: %w", name, err)
	}
	return host.Up(name)
}

// portOf returns the name of a host's port on the switch.
func portOf(host *netnstest.Host) string { return "p-" + host.Name }

// plugIn connects a host's eth0 to a port of the switch.
func plugIn(lab *netnstest.Lab, bridge, host *netnstest.Host, address string) error {
	port := portOf(host)
	err := lab.Link(netnstest.End{Host: bridge, Interface: port}, netnstest.End{Host: host, Interface: "eth0", Addresses: dualStack(address)}, 0)
	if err != nil {
		return err
	}
	master, err := bridge.Netlink().LinkByName("br0")
	if err != nil {
		return err
	}
	link, err := bridge.Netlink().LinkByName(port)
	if err != nil {
		return err
	}
	return bridge.Netlink().LinkSetMaster(link, master)
}
