package netdev

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Event says what to look at again; several changes are one event.
type Event struct {
	// Links: a link came, went, was renamed, or changed a member that Link shows.
	Links bool
	// NextHops: a next hop that was found before may be another one now (route, rule, address or link changed; a
	// neighbour answers with another MAC). A neighbour that is merely confirmed, fails, or is resolved for the first
	// time is no such change.
	NextHops bool
}

// Net is the network of one namespace.
type Net struct {
	log   *slog.Logger
	ns    *namespace
	state *state
	watch *os.File

	mu    sync.Mutex // requests are few: one socket, one at a time
	route *conn
	// nil: the kernel does not tell what interfaces can do for XDP
	generic *generic

	vips    *VIPs
	warmer  *Warmer
	sources *Sources
	health  *health
}

// Open takes the network namespace of the calling thread: subscribes, then reads it once, so that Links answers and
// nothing is missed until Run.
func Open(log *slog.Logger) (*Net, error) { return OpenAt("", log) }

// OpenAt is Open for the namespace at a path, such as /run/netns/NAME.
func OpenAt(path string, log *slog.Logger) (*Net, error) {
	ns, err := openNamespace(path)
	if err != nil {
		return nil, err
	}
	n := &Net{log: log, ns: ns, state: newState()}
	n.vips, n.warmer, n.health, n.sources = newVIPs(n), newWarmer(n), newHealth(), &Sources{net: n}
	if err := n.open(); err != nil {
		_ = n.Close()
		return nil, err
	}
	return n, nil
}

func (n *Net) open() (err error) {
	if n.route, err = n.ns.dial(); err != nil {
		return err
	}
	if n.generic, err = n.ns.openGeneric(); err != nil {
		return err
	}
	if err := n.ns.do(n.subscribe); err != nil {
		return err
	}
	if _, err := n.resync(); err != nil {
		return err
	}
	if n.warmer.route, err = n.ns.dial(); err != nil {
		return err
	}
	if n.vips.route, err = n.ns.dial(); err != nil {
		return err
	}
	if n.sources.route, err = n.ns.dial(); err != nil {
		return err
	}
	return n.vips.adopt()
}

// Close lets the namespace go; what was put into the kernel stays.
func (n *Net) Close() error {
	var errs []error
	if n.watch != nil {
		errs = append(errs, n.watch.Close())
	}
	for _, c := range []*conn{n.route, n.vips.route, n.warmer.route, n.sources.route} {
		if c != nil {
			errs = append(errs, c.close())
		}
	}
	return errors.Join(append(errs, n.generic.close(), n.ns.close())...)
}

// VIPs owns the VIPs that nobody else owns.
func (n *Net) VIPs() *VIPs { return n.vips }

// Warmer keeps the next hops of endpoints resolved.
func (n *Net) Warmer() *Warmer { return n.warmer }

// Sources finds this machine's addresses towards others.
func (n *Net) Sources() *Sources { return n.sources }

// Links returns all links by index.
func (n *Net) Links() []Link {
	n.state.mu.RLock()
	defer n.state.mu.RUnlock()
	out := make([]Link, 0, len(n.state.links))
	for _, l := range n.state.links {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Link) int { return a.Index - b.Index })
	return out
}

// OnLink returns the links, without lo, whose connected network contains the address: their neighbours ask for it by
// ARP or neighbour discovery.
func (n *Net) OnLink(a netip.Addr) []Link {
	n.state.mu.RLock()
	defer n.state.mu.RUnlock()
	return n.state.onLink(a)
}

// Do calls f on a thread in the namespace: sockets that f opens are the namespace's.
func (n *Net) Do(f func() error) error { return n.ns.do(f) }

func (n *Net) link(index int) Link {
	n.state.mu.RLock()
	defer n.state.mu.RUnlock()
	return n.state.links[index]
}

func (n *Net) linkName(index int) string { return n.link(index).Name }

func (n *Net) subscribe() error {
	fd, err := netlinkSocket(unix.NETLINK_ROUTE, unix.SOCK_NONBLOCK)
	if err != nil {
		return err
	}
	setReceiveBuffer(fd, 8<<20)
	groups := []int{
		unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_NEXTHOP,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
		unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
	}
	for _, group := range groups {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group); err != nil {
			_ = unix.Close(fd)
			return fmt.Errorf("subscribe to rtnetlink group %d: %w", group, err)
		}
	}
	n.watch = os.NewFile(uintptr(fd), "rtnetlink")
	return nil
}

// resync reads every table again and says what differs from what was known.
func (n *Net) resync() (change, error) {
	fresh := newState()
	if err := n.readAll(fresh); err != nil {
		return change{}, err
	}
	s := n.state
	s.mu.Lock()
	defer s.mu.Unlock()
	c := change{nextHops: true, places: true, loopback: true, sysctls: true, survey: true}
	c.links = len(s.links) != len(fresh.links)
	for i, l := range fresh.links {
		c.links = c.links || !s.links[i].same(l)
	}
	for ip := range s.addresses {
		if len(fresh.addresses[ip]) != len(s.addresses[ip]) {
			c.addresses = append(c.addresses, ip)
		}
	}
	s.links, s.addresses, s.networks = fresh.links, fresh.addresses, fresh.networks
	s.neighbours, s.gone = fresh.neighbours, 0
	s.ways.lose()
	return c, nil
}

func (n *Net) readAll(into *state) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	take := func(r reply) error {
		into.apply(r)
		return nil
	}
	dumps := []struct {
		what   string
		typ    uint16
		header []byte
	}{
		{"links", unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg)},
		{"addresses", unix.RTM_GETADDR, make([]byte, unix.SizeofIfAddrmsg)},
		{"IPv4 neighbours", unix.RTM_GETNEIGH, familyHeader(unix.AF_INET, unix.SizeofNdMsg)},
		{"IPv6 neighbours", unix.RTM_GETNEIGH, familyHeader(unix.AF_INET6, unix.SizeofNdMsg)},
		{"IPv4 routes", unix.RTM_GETROUTE, routeHeader(unix.AF_INET, unix.RTPROT_KERNEL)},
		{"IPv6 routes", unix.RTM_GETROUTE, routeHeader(unix.AF_INET6, unix.RTPROT_KERNEL)},
		{"IPv6 routes by advertisement", unix.RTM_GETROUTE, routeHeader(unix.AF_INET6, unix.RTPROT_RA)},
	}
	for _, d := range dumps {
		if err := n.route.dump(d.typ, d.header, take); err != nil {
			return fmt.Errorf("list %s: %w", d.what, err)
		}
	}
	return nil
}

func familyHeader(family byte, size int) []byte {
	h := make([]byte, size)
	h[0] = family
	return h
}

// routeHeader asks for the unicast routes of one origin: a full Internet table stays in the kernel.
func routeHeader(family, proto byte) []byte {
	h := familyHeader(family, unix.SizeofRtMsg)
	h[5], h[7] = proto, unix.RTN_UNICAST
	return h
}
