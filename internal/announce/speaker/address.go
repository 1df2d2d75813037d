package speaker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"

	"loxilb/internal/lb/bgp"
)

// listenAddrs returns the addresses at which the speaker can listen. gobgp's error does not name
// the port, and leaves a socket open.
func listenAddrs(port uint16) (addrs []string, err error) {
	for network, addr := range map[string]string{"tcp4": "0.0.0.0", "tcp6": "::"} {
		l, err := new(net.ListenConfig).Listen(context.Background(), network, net.JoinHostPort(addr, strconv.Itoa(int(port))))
		switch {
		case errors.Is(err, syscall.EAFNOSUPPORT):
		case errors.Is(err, syscall.EADDRINUSE):
			return nil, fmt.Errorf("port %d is in use: stop the other BGP speaker of this machine, or use another port", port)
		case err != nil:
			return nil, fmt.Errorf("listen at port %d: %w", port, err)
		default:
			l.Close() //nolint:errcheck // nothing was sent
			addrs = append(addrs, addr)
		}
	}
	return addrs, nil
}

// routerID returns the wanted router id, or an IPv4 address of this node that no other node has.
func routerID(w *wanted) (netip.Addr, error) {
	if w.speaker.RouterID.IsValid() {
		return w.speaker.RouterID, nil
	}
	byAddr := func(a, b bgp.Neighbor) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Interface, b.Interface))
	}
	for _, n := range slices.SortedFunc(maps.Values(w.neighbors), byAddr) {
		if source, ok := sourceTo(n); ok && !w.announces(source) {
			return source, nil
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("select a router id: %w", err)
	}
	var candidates []netip.Addr
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		// Prefixes with all bits are VIPs, which other nodes may also have.
		if err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() && !p.IsSingleIP() && !w.announces(p.Addr()) {
			candidates = append(candidates, p.Addr())
		}
	}
	if len(candidates) == 0 {
		return netip.Addr{}, errors.New("this node has no IPv4 address of its own; set the router id of the BGP speaker")
	}
	return slices.MinFunc(candidates, netip.Addr.Compare), nil
}

// sourceTo returns the IPv4 address from which this node speaks to a neighbor.
func sourceTo(n bgp.Neighbor) (netip.Addr, bool) {
	if !n.Addr.Is4() || n.Source.IsValid() {
		return n.Source, n.Source.Is4()
	}
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(n.Addr, bgp.DefaultPort)))
	if err != nil {
		return netip.Addr{}, false
	}
	defer c.Close() //nolint:errcheck // nothing was sent
	local, err := netip.ParseAddrPort(c.LocalAddr().String())
	return local.Addr(), err == nil
}

// announces reports whether the speaker announces routes to an address.
func (w *wanted) announces(a netip.Addr) bool {
	_, is := w.routes[netip.PrefixFrom(a, a.BitLen())]
	return is
}
