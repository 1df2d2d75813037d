// Package egress leads packets to the node that owns their future source address, through VXLAN
// (RFC 7348). A node that does not own the address sends them to the address itself, so its network
// finds the owner: a new owner's gratuitous ARP, or its route, moves the tunnel as well. Nodes need
// no list of each other (docs/adr/0087-egress-gateway.md).
package egress

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/netdev/netlink"
)

// Gateways are the tunnels of a network namespace. Its methods may be called from any goroutine.
type Gateways struct {
	ns    *netlink.Namespace
	below string // interface that leads to other nodes

	mu  sync.Mutex
	nl  *nl.Handle
	set []Gateway // by Set
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

// Set has the kernel lead marked packets to these gateways, and to no others. It is idempotent, and
// repairs what others have removed.
func (g *Gateways) Set(list []Gateway) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.set = withCollisions(list)
	return errors.Join(g.keepTunnels(g.set), g.keepRules(g.set), g.forwards(g.set))
}

// Uses reports whether Set depends on the interface of this name.
func (g *Gateways) Uses(link string) bool { return link == g.below || IsTunnel(link) }

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

// dumpAttempts is how often a list of kernel objects is read that changes meanwhile.
const dumpAttempts = 20

// dump reads a list of kernel objects, again if they have changed meanwhile: an incomplete list
// would have objects made twice, and leftovers stay.
func dump[T any](read func() ([]T, error)) (list []T, err error) {
	for range dumpAttempts {
		if list, err = read(); !errors.Is(err, nl.ErrDumpInterrupted) {
			break
		}
	}
	return list, err
}
