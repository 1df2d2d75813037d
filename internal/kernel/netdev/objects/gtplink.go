package objects

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/host/machine"
)

// GTPPrefix begins the names of the two interfaces of GTP-U.
const GTPPrefix = "llbgtp"

// The pair of interfaces between routes and the program that puts packets into tunnels. Routes to
// users lead to the first one; what is sent there arrives at the second one.
const (
	gtpNear = GTPPrefix + "0"
	gtpFar  = GTPPrefix + "1"

	gtpOuter = 44                  // bytes of the headers of IPv4, UDP and GTP-U with the QoS flow
	gtpMTU   = usualMTU - gtpOuter // of packets to users, whatever way the base station has
	usualMTU = 1500
)

// ethtoolSetTxChecksum has an interface write checksums, or not (linux/ethtool.h). Without them it
// does not cut segments either.
const ethtoolSetTxChecksum = 0x17

// MakeGTP makes the interfaces of GTP-U, unless they exist, has routes to exactly these users lead
// there, and returns the index and name of the interface where packets to them arrive. No users: it
// removes the interfaces.
//
// It is a pair, since packets must be finished before they get the tunnel's header, which has a
// length: the kernel cuts into segments what leaves the first one, and writes its checksums, as
// that interface can do neither.
func (k *Kernel) MakeGTP(users []netip.Addr) (far int, name string, err error) {
	if len(users) == 0 {
		return 0, "", k.removeGTP()
	}
	near, err := k.gtpPair()
	if err != nil {
		return 0, "", fmt.Errorf("make the interfaces of GTP-U: %w", err)
	}
	other, err := k.nl.LinkByName(gtpFar)
	if err != nil {
		return 0, "", fmt.Errorf("find the interface of GTP-U: %w", err)
	}
	if err := k.leadUsers(near, other.Attrs().HardwareAddr, users); err != nil {
		return 0, "", err
	}
	return other.Attrs().Index, gtpFar, nil
}

func (k *Kernel) removeGTP() error {
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

// gtpPair returns the first interface, and has both up.
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
	// otherwise the kernel knows no way from there to the base station
	return near, errors.Join(err, k.ns.SetSysctl("ipv4/conf/"+gtpFar+"/forwarding", 1))
}

// leadUsers makes the routes to users, and their neighbours, so that nobody is asked for a MAC
// address. Routes to others there are removed.
func (k *Kernel) leadUsers(near nl.Link, mac net.HardwareAddr, users []netip.Addr) error {
	index := near.Attrs().Index
	there, err := k.nl.RouteListFiltered(nl.FAMILY_ALL, &nl.Route{LinkIndex: index, Table: unix.RT_TABLE_MAIN, Protocol: unix.RTPROT_STATIC}, nl.RT_FILTER_OIF|nl.RT_FILTER_TABLE|nl.RT_FILTER_PROTOCOL)
	if err != nil {
		return fmt.Errorf("list routes to mobile users: %w", err)
	}
	led := map[netip.Addr]bool{}
	wanted := map[netip.Addr]bool{}
	for _, user := range users {
		wanted[user] = true
	}
	for _, r := range there {
		user, ok := netip.AddrFromSlice(r.Dst.IP)
		if ok && wanted[user.Unmap()] {
			led[user.Unmap()] = true
			continue
		}
		if err := absent(k.nl.RouteDel(&r), unix.ESRCH); err != nil {
			return fmt.Errorf("remove the route to %s: %w", r.Dst, err)
		}
	}
	for user := range wanted {
		if led[user] {
			continue
		}
		if err := k.leadUser(index, mac, user); err != nil {
			return fmt.Errorf("lead packets to mobile user %s: %w", user, err)
		}
	}
	return nil
}

func (k *Kernel) leadUser(index int, mac net.HardwareAddr, user netip.Addr) error {
	err := k.nl.NeighSet(&nl.Neigh{LinkIndex: index, State: nl.NUD_PERMANENT, IP: user.AsSlice(), HardwareAddr: mac})
	if err != nil {
		return err
	}
	return k.nl.RouteReplace(&nl.Route{
		LinkIndex: index, Dst: netOf(netip.PrefixFrom(user, user.BitLen())), Protocol: unix.RTPROT_STATIC, Table: unix.RT_TABLE_MAIN, Scope: nl.SCOPE_LINK,
	})
}
