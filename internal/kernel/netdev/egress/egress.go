// Package egress leads packets to the node that owns their future source address, through VXLAN
// (RFC 7348). A node that does not own the address sends them to the address itself, so its network
// finds the owner: a new owner's gratuitous ARP, or its route, moves the tunnel as well. Nodes need
// no list of each other (docs/adr/0087-egress-gateway.md).
package egress

import (
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
)

// Gateway is an address that connections leave with, on one node of a cluster at a time.
type Gateway struct {
	Addr  netip.Addr
	Mark  uint32 // that packets for the gateway carry on this node
	Owned bool   // by this node: packets from other nodes end here
}

const (
	// port is VXLAN's.
	port = 4789
	// namePrefix begins the name of each tunnel's interface; its number follows.
	namePrefix = "egr"
	// preference is that of the first of three rules for a mark; the kernel's own begin with
	// 32,766.
	preference = 9990
)

// Gateways are the tunnels of a network namespace. Its methods may be called from any goroutine.
type Gateways struct {
	ns    *netlink.Namespace
	below string // interface that leads to other nodes

	mu sync.Mutex
	nl *nl.Handle
}

// Open opens the namespace, whose nodes reach each other by an interface.
func Open(ns *netlink.Namespace, below string) (*Gateways, error) {
	g := &Gateways{ns: ns, below: below}
	err := ns.Do(func() (err error) {
		g.nl, err = nl.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return g, nil
}

// Close closes it; the tunnels stay.
func (g *Gateways) Close() { g.nl.Close() }

// Set has the kernel lead marked packets to these gateways, and to no others. It is idempotent.
func (g *Gateways) Set(list []Gateway) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	wanted := map[string]bool{}
	for _, one := range list {
		wanted[one.device()] = true
		if err := g.set(one); err != nil {
			errs = append(errs, fmt.Errorf("egress gateway %s: %w", one.Addr, err))
		}
	}
	return errors.Join(append(errs, g.keepRules(list), g.keepTunnels(wanted), g.forwards(list))...)
}

// forwards returns an error if packets need a gateway of another node, and the kernel does not
// forward them.
func (g *Gateways) forwards(list []Gateway) error {
	for _, one := range list {
		name := "ipv4/ip_forward"
		if one.Addr.Is6() {
			name = "ipv6/conf/all/forwarding"
		}
		on := true
		err := g.ns.Do(func() error { // the file's content depends on the thread's namespace
			b, err := os.ReadFile("/proc/sys/net/" + name)
			on = strings.TrimSpace(string(b)) != "0"
			return err
		})
		if err == nil && !on && !one.Owned {
			return fmt.Errorf("this node does not forward packets to egress gateway %s; run: sysctl -w net.%s=1", one.Addr, strings.ReplaceAll(name, "/", "."))
		}
	}
	return nil
}

func (g *Gateways) set(one Gateway) error {
	link, err := g.tunnel(one)
	if err != nil {
		return err
	}
	return g.lead(one, link)
}

// tunnel returns the interface of the tunnel, with the MAC address of this node's part.
func (g *Gateways) tunnel(one Gateway) (nl.Link, error) {
	below, err := g.nl.LinkByName(g.below)
	if err != nil {
		return nil, fmt.Errorf("find interface %q of --clusterinterface: %w", g.below, err)
	}
	link, err := g.nl.LinkByName(one.device())
	if err == nil && link.Attrs().ParentIndex != below.Attrs().Index && link.Attrs().ParentIndex != 0 {
		if err := g.nl.LinkDel(link); err != nil {
			return nil, fmt.Errorf("remove the tunnel over another interface: %w", err)
		}
		err = unix.ENODEV
	}
	mac := one.mac(below.Attrs().HardwareAddr)
	if err != nil {
		err := g.nl.LinkAdd(&nl.Vxlan{
			LinkAttrs: nl.LinkAttrs{Name: one.device(), HardwareAddr: mac, Flags: net.FlagUp},
			VxlanId:   int(one.number()), VtepDevIndex: below.Attrs().Index, Group: one.Addr.AsSlice(), Port: port,
		})
		if err != nil {
			return nil, fmt.Errorf("make tunnel %s over %s: %w", one.device(), g.below, err)
		}
		return g.nl.LinkByName(one.device())
	}
	if link.Attrs().HardwareAddr.String() != mac.String() {
		if err := g.nl.LinkSetHardwareAddr(link, mac); err != nil {
			return nil, fmt.Errorf("set the MAC address of tunnel %s: %w", one.device(), err)
		}
	}
	return link, g.nl.LinkSetUp(link)
}

// lead makes the routes into the tunnel: a table of its own, whose router is a permanent neighbour
// with the MAC address of every owner.
func (g *Gateways) lead(one Gateway, link nl.Link) error {
	router := one.router()
	neighbour := &nl.Neigh{
		LinkIndex: link.Attrs().Index, IP: router.AsSlice(), HardwareAddr: ownerMAC(one.number()), State: unix.NUD_PERMANENT,
	}
	if err := g.nl.NeighSet(neighbour); err != nil {
		return fmt.Errorf("make the neighbour of tunnel %s: %w", one.device(), err)
	}
	route := &nl.Route{
		LinkIndex: link.Attrs().Index, Table: int(one.number()), Gw: router.AsSlice(), Dst: everything(router),
		Flags: int(nl.FLAG_ONLINK), Protocol: nl.RouteProtocol(netlink.OwnProtocol),
	}
	if err := g.nl.RouteReplace(route); err != nil {
		return fmt.Errorf("make the route into tunnel %s: %w", one.device(), err)
	}
	return nil
}

// keepRules makes the rules for marked packets, and removes those of other marks: a marked packet
// that leaves by a default route takes the tunnel instead.
func (g *Gateways) keepRules(list []Gateway) error {
	have, err := g.rules()
	if err != nil {
		return err
	}
	var errs []error
	for _, one := range list {
		for _, rule := range one.rules() {
			key := ruleKey(rule)
			if _, there := have[key]; there {
				delete(have, key)
				continue
			}
			if err := g.nl.RuleAdd(rule); err != nil {
				errs = append(errs, fmt.Errorf("make the rule of egress gateway %s: %w", one.Addr, err))
			}
		}
	}
	for _, rule := range have {
		if err := g.nl.RuleDel(&rule); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("remove the rule of mark %#x: %w", rule.Mark, err))
		}
	}
	return errors.Join(errs...)
}

// rules returns the rules of this package in the kernel.
func (g *Gateways) rules() (map[string]nl.Rule, error) {
	have := map[string]nl.Rule{}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := g.nl.RuleList(family)
		if err != nil {
			return nil, fmt.Errorf("list the rules of routing: %w", err)
		}
		for _, rule := range list {
			if rule.Protocol == netlink.OwnProtocol && rule.Priority >= preference && rule.Priority <= preference+2 {
				rule.Family = family
				have[ruleKey(&rule)] = rule
			}
		}
	}
	return have, nil
}

func ruleKey(r *nl.Rule) string {
	return fmt.Sprint(r.Family, " ", r.Priority, " ", r.Mark, " ", r.Table)
}

// keepTunnels removes tunnels to addresses that are no gateways.
func (g *Gateways) keepTunnels(wanted map[string]bool) error {
	links, err := g.nl.LinkList()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	var errs []error
	for _, l := range links {
		t, is := l.(*nl.Vxlan)
		if is && !wanted[t.Name] && t.Port == port && t.Name == deviceName(uint32(t.VxlanId)) {
			if err := g.nl.LinkDel(l); err != nil {
				errs = append(errs, fmt.Errorf("remove tunnel %s: %w", t.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// firstNumber begins the numbers of tunnels and routing tables, above those that people choose.
const firstNumber = 1 << 23

// number returns the tunnel's number, and that of its routing table: the same on all nodes, 24
// bits.
func (one Gateway) number() uint32 {
	n := uint32(2166136261) // FNV-1a, 32 bits
	for _, b := range one.Addr.AsSlice() {
		n = (n ^ uint32(b)) * 16777619
	}
	return firstNumber | (n^n>>23)&(firstNumber-1)
}

func (one Gateway) device() string { return deviceName(one.number()) }

func deviceName(number uint32) string { return fmt.Sprintf("%s%06x", namePrefix, number) }

// IsTunnel reports whether an interface of this name is a tunnel to a gateway.
func IsTunnel(name string) bool {
	digits, is := strings.CutPrefix(name, namePrefix)
	return is && len(digits) == 6 && strings.Trim(digits, "0123456789abcdef") == ""
}

// ownerMAC is the MAC address of the owner's end. The kernel drops frames that come from a tunnel
// with its own MAC address, so no other node has it.
func ownerMAC(number uint32) net.HardwareAddr {
	return net.HardwareAddr{2, 0x6c, 0x62, byte(number >> 16), byte(number >> 8), byte(number)}
}

// mac returns the MAC address of this node's end, which derives from that of the interface below.
func (one Gateway) mac(below net.HardwareAddr) net.HardwareAddr {
	if one.Owned {
		return ownerMAC(one.number())
	}
	mac := net.HardwareAddr{6, 0, 0, 0, 0, 0}
	copy(mac[1:], below[max(0, len(below)-5):])
	return mac
}

// router is the next hop in the tunnel: any address that is never asked for.
func (one Gateway) router() netip.Addr {
	if one.Addr.Is4() {
		return netip.AddrFrom4([4]byte{169, 254, 0, 1})
	}
	return netip.MustParseAddr("fe80::1")
}

// rules returns the rules for marked packets: routes of the main table but its default routes, then
// the tunnel. Without a tunnel the destination is unreachable, so no packet leaves with the source
// address that the gateway is to hide.
func (one Gateway) rules() []*nl.Rule {
	networks, tunnel, nowhere := nl.NewRule(), nl.NewRule(), nl.NewRule()
	networks.Priority, networks.Table, networks.SuppressPrefixlen = preference, unix.RT_TABLE_MAIN, 0
	tunnel.Priority, tunnel.Table = preference+1, int(one.number())
	nowhere.Priority, nowhere.Type = preference+2, unix.RTN_UNREACHABLE
	list := []*nl.Rule{networks, tunnel, nowhere}
	for _, r := range list {
		r.Mark, r.Protocol, r.Family = one.Mark, netlink.OwnProtocol, unix.AF_INET
		if one.Addr.Is6() {
			r.Family = unix.AF_INET6
		}
	}
	return list
}

// everything is the prefix of a default route.
func everything(like netip.Addr) *net.IPNet {
	bits := like.BitLen()
	return &net.IPNet{IP: make(net.IP, bits/8), Mask: net.CIDRMask(0, bits)}
}
