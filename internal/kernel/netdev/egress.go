package netdev

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/netdev/netlink"
)

// Gateways route packets to the node that owns their future source address, through VXLAN (RFC
// 7348). A node that does not own the address sends them to the address itself, so its network
// finds the owner: a new owner's gratuitous ARP, or its route, moves the tunnel as well. Nodes need
// no list of each other (docs/adr/0015-egress.md).
//
// Methods may be called from any goroutine.
type Gateways struct {
	ns       *netlink.Namespace
	underlay string // interface that leads to other nodes

	mu  sync.Mutex
	nl  *nl.Handle
	set []Gateway // by Set
}

// openGateways opens the namespace. underlay is the interface that leads to other nodes.
func openGateways(ns *netlink.Namespace, underlay string) (*Gateways, error) {
	g := &Gateways{ns: ns, underlay: underlay}
	err := ns.Do(func() (err error) {
		g.nl, err = nl.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return g, nil
}

// Close closes the netlink socket; the tunnels stay.
func (g *Gateways) Close() { g.nl.Close() }

// Set makes the kernel route marked packets to these gateways only. It is idempotent, and repairs
// what others have removed. It returns the error of each failing gateway; err concerns all of them.
func (g *Gateways) Set(list []Gateway) (failed map[netip.Addr]error, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.set = withCollisions(list)
	failed, err = g.syncTunnels(g.set)
	err = errors.Join(err, g.syncRules(g.set))
	forwards := map[bool]error{false: g.forwards(false), true: g.forwards(true)}
	for _, one := range g.set {
		if failed[one.Addr] == nil && !one.Owned {
			failed[one.Addr] = forwards[one.Addr.Is6()]
		}
	}
	return failed, err
}

// Uses reports whether Set depends on the interface of this name.
func (g *Gateways) Uses(link string) bool { return link == g.underlay || IsTunnel(link) }

// forwards returns an error if the kernel does not forward packets of an IP version.
func (g *Gateways) forwards(six bool) error {
	name := "ipv4/ip_forward"
	if six {
		name = "ipv6/conf/all/forwarding"
	}
	if on, err := g.ns.Sysctl(name); err != nil || on != 0 {
		return nil
	}
	return fmt.Errorf("this node does not forward packets to it; run: sysctl -w net.%s=1", strings.ReplaceAll(name, "/", "."))
}

// dumpAttempts is the maximum number of reads of a list that changes while it is read.
const dumpAttempts = 20

// dump reads a list of kernel objects, again if they changed during the read: with an incomplete
// list, objects would be made twice, and unused ones would stay.
func dump[T any](read func() ([]T, error)) (list []T, err error) {
	for range dumpAttempts {
		if list, err = read(); !errors.Is(err, nl.ErrDumpInterrupted) {
			break
		}
	}
	return list, err
}
