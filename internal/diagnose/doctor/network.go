package doctor

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Network is the network namespace to examine.
type Network interface {
	Links() ([]Link, error)
	Neighbours() ([]Neighbour, error)
	// Route returns the route to an address.
	Route(netip.Addr) (Route, error)
	Ping(to netip.Addr, sizes ...int) (answered []bool, err error)
	Connect(at netip.AddrPort) error
	// Feature reports whether an offload of an interface is on; known is false if that cannot be
	// queried.
	Feature(link string, f Feature) (on, known bool)
	SetFeature(link string, f Feature, on bool) error
}

// Link is an interface.
type Link struct {
	Index    int
	Name     string
	Kind     string // "device" for a card
	MTU      int
	Up       bool
	Loopback bool
	Addrs    []netip.Addr
}

// Neighbour is an entry of the kernel's neighbour table.
type Neighbour struct {
	Addr   netip.Addr
	Link   int
	MAC    string
	Failed bool // it does not answer
	Valid  bool // it has answered
}

// Route is a route to an address.
type Route struct {
	Link string
	MTU  int        // of the route; 0: the interface's
	Via  netip.Addr // the gateway, if there is one
}

// kernelNetwork is the network namespace of the calling thread.
type kernelNetwork struct{}

func (kernelNetwork) Links() ([]Link, error) {
	list, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	at := map[int][]netip.Addr{}
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			at[a.LinkIndex] = append(at[a.LinkIndex], ip.Unmap())
		}
	}
	out := make([]Link, len(list))
	for i, l := range list {
		a := l.Attrs()
		out[i] = Link{
			Index: a.Index, Name: a.Name, Kind: l.Type(), MTU: a.MTU, Up: a.RawFlags&1 != 0, Loopback: a.RawFlags&8 != 0, Addrs: at[a.Index],
		}
	}
	return out, nil
}

func (kernelNetwork) Neighbours() ([]Neighbour, error) {
	list, err := netlink.NeighList(0, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	out := make([]Neighbour, 0, len(list))
	for _, n := range list {
		ip, ok := netip.AddrFromSlice(n.IP)
		if !ok || n.State == netlink.NUD_NOARP {
			continue
		}
		out = append(out, Neighbour{
			Addr: ip.Unmap(), Link: n.LinkIndex, MAC: n.HardwareAddr.String(), Failed: n.State&netlink.NUD_FAILED != 0,
			Valid: n.State&(netlink.NUD_REACHABLE|netlink.NUD_STALE|netlink.NUD_DELAY|netlink.NUD_PROBE) != 0,
		})
	}
	return out, nil
}

func (kernelNetwork) Route(to netip.Addr) (Route, error) {
	list, err := netlink.RouteGet(to.AsSlice())
	if err != nil {
		return Route{}, fmt.Errorf("look up the route to %s: %w", to, err)
	}
	if len(list) == 0 {
		return Route{}, fmt.Errorf("no route to %s", to)
	}
	l, err := netlink.LinkByIndex(list[0].LinkIndex)
	if err != nil {
		return Route{}, fmt.Errorf("look up the route to %s: %w", to, err)
	}
	via, _ := netip.AddrFromSlice(list[0].Gw)
	return Route{Link: l.Attrs().Name, MTU: list[0].MTU, Via: via.Unmap()}, nil
}
