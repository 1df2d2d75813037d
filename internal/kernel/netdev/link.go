package netdev

import (
	"context"
	"net/netip"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"loxilb/internal/host/machine"
	"loxilb/internal/kernel/netdev/mirror"
	"loxilb/internal/kernel/netdev/netlink"
	"loxilb/internal/kernel/netdev/objects"
)

// Link is a network interface as the data path needs to see it.
type Link = mirror.Link

// Tap is a tunnel for copies of packets to a collector.
type Tap = objects.Tap

// MobileUser is a user whose packets lead to the interfaces of GTP-U.
type MobileUser = objects.MobileUser

// Hop is a next hop: an interface, and a gateway or no valid address.
type Hop = mirror.Hop

// Select returns the links to attach to. With a whitelist, they are the links whose name it
// matches; otherwise all links whose name the blacklist does not match. Loopback is never selected.
// Tunnels of egress gateways always are: without programs there, packets would leave untranslated.
func Select(links []Link, whitelist, blacklist *regexp.Regexp) []Link {
	var out []Link
	for _, l := range links {
		switch {
		case l.Loopback():
		case strings.HasPrefix(l.Name, objects.TapPrefix), strings.HasPrefix(l.Name, objects.GTPPrefix): // only what we send there
		case IsTunnel(l.Name):
			out = append(out, l)
		case whitelist != nil && !whitelist.MatchString(l.Name):
		case whitelist == nil && blacklist != nil && blacklist.MatchString(l.Name):
		default:
			out = append(out, l)
		}
	}
	return out
}

// HostRoute is the route of packets from this machine to a host.
type HostRoute struct {
	Link    Link       // link at which they leave
	Gateway netip.Addr // the router; not valid: the host is a neighbour
	Local   bool       // the host is this machine itself
	Silent  bool       // the gateway, or the host, does not answer requests for its MAC address
	Missing error      // why there is no route; nil: there is one
}

// RouteTo queries the kernel for the route to a host, and the state of the neighbour there.
func (n *Net) RouteTo(ctx context.Context, host netip.Addr) (l HostRoute, err error) {
	s := n.sources
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.conn.LookUp(ctx, []netip.Addr{host}, func(_ int, rt netlink.Route, missing error) {
		l = HostRoute{Link: n.mirror.Link(rt.Link), Gateway: rt.Gateway, Local: rt.Kind == unix.RTN_LOCAL, Missing: missing}
	})
	if err != nil || l.Missing != nil || l.Local {
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

// HidesTags reports whether a link's driver removes VLAN tags from received frames, so XDP does not
// see them. A veth always passes the tag in metadata, regardless of its offloads. It returns true
// for a driver that cannot be queried.
func (n *Net) HidesTags(l Link) bool {
	const (
		getFlags = 0x25   // ETHTOOL_GFLAGS
		rxVLAN   = 1 << 8 // ETH_FLAG_RXVLAN
	)
	if l.Kind == "veth" {
		return true
	}
	var flags uint32
	err := n.ns.Do(func() (err error) {
		flags, err = machine.Ethtool(l.Name, getFlags, 0)
		return err
	})
	return err != nil || flags&rxVLAN != 0
}
