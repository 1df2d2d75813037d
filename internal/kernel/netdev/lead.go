package netdev

import (
	"context"
	"net/netip"

	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/netdev/netlink"
)

// Leading is where packets of this machine to a host are led.
type Leading struct {
	Link    Link       // by which they leave
	Gateway netip.Addr // the router; not valid: the host is a neighbour
	Here    bool       // the host is this machine itself
	Silent  bool       // the gateway, or the host, does not answer requests for its MAC address
	Missing error      // why there is no route; nil: there is one
}

// Lead queries the kernel for the route to a host, and the state of the neighbour there.
func (n *Net) Lead(ctx context.Context, host netip.Addr) (l Leading, err error) {
	s := n.sources
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.conn.LookUp(ctx, []netip.Addr{host}, func(_ int, rt netlink.Route, missing error) {
		l = Leading{Link: n.mirror.Link(rt.Link), Gateway: rt.Gateway, Here: rt.Kind == unix.RTN_LOCAL, Missing: missing}
	})
	if err != nil || l.Missing != nil || l.Here {
		return l, err
	}
	hop := Hop{Link: l.Link.Index, Via: l.Gateway}
	if !hop.Via.IsValid() {
		hop.Via = host
	}
	l.Silent = l.Link.Resolves() && n.mirror.Neighbour(hop).Silent
	return l, nil
}

// ReversePathFilter returns the rp_filter in force on a link, of IPv4.
func (n *Net) ReversePathFilter(link string) int { return n.settings.ReversePathFilter(link) }
