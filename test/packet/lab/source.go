package lab

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"loxilb/internal/control/compile"
	"loxilb/internal/kernel/datapath"
)

// path returns the path to an endpoint that the kernel would choose. Each network of the lab has
// one address of the load balancer, one route and one interface. The second server represents a
// container of this machine.
func (l *Lab) path(endpoint netip.Addr) compile.Path {
	routes, err := netlink.RouteGet(endpoint.AsSlice())
	if err != nil || len(routes) == 0 {
		return compile.Path{}
	}
	source, _ := netip.AddrFromSlice(routes[0].Src)
	path := compile.Path{Source: source.Unmap()}
	found, err := netlink.RouteGetWithOptions(endpoint.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err == nil && len(found) > 0 && found[0].Dst != nil {
		bits, _ := found[0].Dst.Mask.Size()
		path.RouteBits = uint8(bits)
	}
	if len(routes[0].Gw) == 0 {
		path.SourceBits = path.RouteBits
	}
	path.Returns = endpoint.Unmap() == netip.AddrFrom4([4]byte{192, 168, 1, 11}) || endpoint == netip.MustParseAddr("2001:db8:2::11")
	return path
}

// readLocalAddresses writes the load balancer's addresses to the data path.
func (l *Lab) readLocalAddresses() error {
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	var out []netip.Addr
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && ip.Unmap().IsGlobalUnicast() {
			out = append(out, ip.Unmap())
		}
	}
	return l.Datapath.SetLocalAddresses(out)
}

// defaultRoutes returns the default routes, which lead to the router before the clients.
func (n *Network) defaultRoutes() (out []datapath.DefaultRoute) {
	for _, a := range routers() {
		out = append(out, datapath.DefaultRoute{Gateway: a, Interface: n.Client.Index})
	}
	return out
}
