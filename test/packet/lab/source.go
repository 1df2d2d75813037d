package lab

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"loxilb/internal/datapath"
)

// source is the load balancer's address towards an endpoint, as the kernel would choose it.
func (l *Lab) source(endpoint netip.Addr) netip.Addr {
	routes, err := netlink.RouteGet(endpoint.AsSlice())
	if err != nil || len(routes) == 0 {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(routes[0].Src)
	return a.Unmap()
}

// readLocalAddresses tells the data path which addresses the load balancer has.
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

// defaultRoutes lead by the router before the clients.
func (n *Network) defaultRoutes() (out []datapath.DefaultRoute) {
	for _, a := range routers() {
		out = append(out, datapath.DefaultRoute{Gateway: a, Interface: n.Client.Index})
	}
	return out
}
