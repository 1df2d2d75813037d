package objects

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/host/machine"
	"loxilb/internal/kernel/netdev/netlink"
)

// GTPPrefix begins the names of the two interfaces of GTP-U.
const GTPPrefix = "llbgtp"

// The pair of interfaces between routes and the program that puts packets into tunnels. Routes to
// users lead to the first one; its packets arrive at the second one.
const (
	gtpNear = GTPPrefix + "0"
	gtpFar  = GTPPrefix + "1"

	gtpOuter  = 44 // bytes of the headers of IPv4, UDP and GTP-U with the QoS flow
	gtpOuter6 = 64 // ... of IPv6
	usualMTU  = 1500
	leastMTU6 = 1280                // of packets of IPv6 (RFC 8200 section 5)
	gtpMTU    = usualMTU - gtpOuter // of the interfaces
)

// The routes to users are in a separate table. A rule selects it before the main table, except for
// packets that have been there already: packets without a classifier take the route that they would
// have without a session.
const (
	gtpTable = 2152
	gtpRule  = 32765 // its preference; the main table's is 32766
)

// MobileUser is a user whose packets lead to the interfaces of GTP-U. A user with several base
// stations is in a list once for each.
type MobileUser struct {
	Addr, Access netip.Addr // Access: of the base station
}

// userMTUs returns the MTU of each user's route: packets must fit the interfaces to all of the
// user's base stations, with the header of the tunnel. The program that adds it cannot fragment.
func (k *Kernel) userMTUs(users []MobileUser) map[netip.Addr]int {
	stations, out := map[netip.Addr]int{}, map[netip.Addr]int{}
	for _, user := range users {
		mtu, known := stations[user.Access]
		if !known {
			mtu = k.mtuTowards(user.Access) - gtpOuter
			if user.Access.Is6() {
				mtu += gtpOuter - gtpOuter6
			}
			stations[user.Access] = mtu
		}
		if user.Addr.Is6() {
			mtu = max(mtu, leastMTU6)
		}
		if other, several := out[user.Addr]; !several || mtu < other {
			out[user.Addr] = mtu
		}
	}
	return out
}

// mtuTowards returns the MTU of the interface towards an address, at most the usual one. Without a
// route now, a later one counts with the next change of a session.
func (k *Kernel) mtuTowards(addr netip.Addr) int {
	routes, err := k.nl.RouteGet(addr.AsSlice())
	if err != nil || len(routes) == 0 {
		return usualMTU
	}
	l, err := k.nl.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return usualMTU
	}
	return min(l.Attrs().MTU, usualMTU)
}

// ethtoolSetTxChecksum switches an interface's checksum offload (linux/ethtool.h). Without it, the
// interface does not segment either.
const ethtoolSetTxChecksum = 0x17

// MakeGTP creates the two interfaces of GTP-U, unless they exist, and routes packets for exactly
// these users there. It returns the indexes of both, and the name of the second one, where packets
// to users arrive. Without users, it removes the interfaces.
//
// The interfaces are a pair, since packets must be complete before they get the tunnel's header,
// which has a length. The first interface has no offloads, so the kernel segments its packets and
// writes their checksums.
func (k *Kernel) MakeGTP(users []MobileUser) (near, far int, name string, err error) {
	if len(users) == 0 {
		return 0, 0, "", k.removeGTP()
	}
	first, err := k.gtpPair()
	if err != nil {
		return 0, 0, "", fmt.Errorf("make the interfaces of GTP-U: %w", err)
	}
	other, err := k.nl.LinkByName(gtpFar)
	if err != nil {
		return 0, 0, "", fmt.Errorf("find the interface of GTP-U: %w", err)
	}
	if err := k.routeUsers(first, other.Attrs().HardwareAddr, users); err != nil {
		return 0, 0, "", err
	}
	if err := k.addGTPRules(); err != nil {
		return 0, 0, "", err
	}
	return first.Attrs().Index, other.Attrs().Index, gtpFar, k.forgetMainRoutes(first)
}

func (k *Kernel) removeGTP() error {
	if err := k.removeGTPRules(); err != nil {
		return err
	}
	l, err := k.nl.LinkByName(gtpNear)
	if errors.As(err, new(nl.LinkNotFoundError)) {
		return nil
	}
	if err == nil {
		err = absent(k.nl.LinkDel(l), unix.ENODEV)
	}
	if err != nil {
		return fmt.Errorf("remove the interfaces of GTP-U: %w", err)
	}
	return nil
}

// gtpRules returns the rules of both IP versions that lead to the routes to users.
func gtpRules() []*nl.Rule {
	var list []*nl.Rule
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		r := nl.NewRule()
		r.Family, r.Priority, r.Table, r.Protocol = family, gtpRule, gtpTable, netlink.OwnProtocol
		r.IifName, r.Invert = gtpFar, true
		list = append(list, r)
	}
	return list
}

// addGTPRules adds the rules, unless they exist. The kernel may lack IPv6.
func (k *Kernel) addGTPRules() error {
	for _, r := range gtpRules() {
		if err := absent(k.nl.RuleAdd(r), unix.EEXIST, unix.EAFNOSUPPORT, unix.EOPNOTSUPP); err != nil {
			return fmt.Errorf("add the rule of routes to mobile users: %w", err)
		}
	}
	return nil
}

func (k *Kernel) removeGTPRules() error {
	for _, r := range gtpRules() {
		if err := absent(k.nl.RuleDel(r), unix.ENOENT, unix.EAFNOSUPPORT, unix.EOPNOTSUPP); err != nil {
			return fmt.Errorf("remove the rule of routes to mobile users: %w", err)
		}
	}
	return nil
}

// gtpPair sets both interfaces up, and returns the first one.
func (k *Kernel) gtpPair() (near nl.Link, err error) {
	near, err = k.nl.LinkByName(gtpNear)
	if errors.As(err, new(nl.LinkNotFoundError)) {
		attrs := nl.NewLinkAttrs()
		attrs.Name, attrs.MTU = gtpNear, gtpMTU
		if err := k.nl.LinkAdd(&nl.Veth{LinkAttrs: attrs, PeerName: gtpFar, PeerMTU: gtpMTU}); err != nil {
			return nil, err
		}
		near, err = k.nl.LinkByName(gtpNear)
	}
	if err != nil {
		return nil, err
	}
	far, err := k.nl.LinkByName(gtpFar)
	if err != nil {
		return nil, err
	}
	for _, l := range []nl.Link{near, far} {
		if l.Attrs().Flags&net.FlagUp != 0 {
			continue
		}
		if err := errors.Join(k.nl.LinkSetARPOff(l), k.nl.LinkSetUp(l)); err != nil {
			return nil, err
		}
	}
	err = k.ns.Do(func() error {
		_, err := machine.Ethtool(gtpNear, ethtoolSetTxChecksum, 0)
		return err
	})
	// without forwarding, the kernel finds no route from there to the base station
	err = errors.Join(err, k.ns.SetSysctl("ipv4/conf/"+gtpFar+"/forwarding", 1))
	if without := k.ns.SetSysctl("ipv6/conf/"+gtpFar+"/forwarding", 1); !errors.Is(without, os.ErrNotExist) {
		err = errors.Join(err, without)
	}
	return near, err
}

// routeUsers makes the routes to users, with permanent neighbours, so no MAC address is requested.
// It removes other routes in the table.
func (k *Kernel) routeUsers(near nl.Link, mac net.HardwareAddr, users []MobileUser) error {
	index := near.Attrs().Index
	there, err := k.routesTo(index, gtpTable)
	if err != nil {
		return err
	}
	wanted := k.userMTUs(users)
	for _, r := range there {
		addr, _ := netip.AddrFromSlice(r.Dst.IP)
		if mtu, is := wanted[addr.Unmap()]; is {
			if r.MTU == mtu {
				delete(wanted, addr.Unmap())
			}
			continue
		}
		if err := absent(k.nl.RouteDel(&r), unix.ESRCH); err != nil {
			return fmt.Errorf("remove the route to %s: %w", r.Dst, err)
		}
	}
	for user, mtu := range wanted {
		if err := k.routeUser(index, mac, user, mtu); err != nil {
			return fmt.Errorf("route packets to mobile user %s: %w", user, err)
		}
	}
	return nil
}

func (k *Kernel) routeUser(index int, mac net.HardwareAddr, user netip.Addr, mtu int) error {
	err := k.nl.NeighSet(&nl.Neigh{LinkIndex: index, State: nl.NUD_PERMANENT, IP: user.AsSlice(), HardwareAddr: mac})
	if err != nil {
		return err
	}
	return k.nl.RouteReplace(&nl.Route{
		LinkIndex: index, Dst: netOf(netip.PrefixFrom(user, user.BitLen())), Protocol: unix.RTPROT_STATIC, Table: gtpTable, Scope: nl.SCOPE_LINK,
		MTU: mtu, MTULock: true,
	})
}

// forgetMainRoutes removes the routes to users that a former build made in the main table.
func (k *Kernel) forgetMainRoutes(near nl.Link) error {
	list, err := k.routesTo(near.Attrs().Index, unix.RT_TABLE_MAIN)
	if err != nil {
		return err
	}
	for _, r := range list {
		if err := absent(k.nl.RouteDel(&r), unix.ESRCH); err != nil {
			return fmt.Errorf("remove the former route to %s: %w", r.Dst, err)
		}
	}
	return nil
}

// routesTo returns the routes of a table to an interface that this package made.
func (k *Kernel) routesTo(index, table int) ([]nl.Route, error) {
	list, err := k.nl.RouteListFiltered(nl.FAMILY_ALL, &nl.Route{LinkIndex: index, Table: table, Protocol: unix.RTPROT_STATIC}, nl.RT_FILTER_OIF|nl.RT_FILTER_TABLE|nl.RT_FILTER_PROTOCOL)
	if err != nil {
		return nil, fmt.Errorf("list routes to mobile users: %w", err)
	}
	return list, nil
}
