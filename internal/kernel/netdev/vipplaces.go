package netdev

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/netdev/mirror"
	"loxilb/internal/kernel/netdev/netlink"
)

// vipPlacement is a VIP and one of its locations.
type vipPlacement struct {
	addr netip.Addr
	location
}

// addAll adds VIPs at locations, and records failures. An existing address counts as ours if it did
// before. The returned error concerns all of them.
func (o *VIPOwner) addAll(ctx context.Context, steps []vipPlacement) error {
	if len(steps) == 0 {
		return nil
	}
	vips := make([]netip.Addr, len(steps))
	requests := make([]*netlink.Request, len(steps))
	for i, s := range steps {
		vips[i], requests[i] = s.addr, s.request(true)
	}
	o.mirror.ReserveRoutes(vips, len(o.wanted))
	var pending []netip.Addr
	err := o.conn.Batch(ctx, requests, func(i int, _ []byte, err error) {
		s := steps[i]
		switch {
		case err == nil:
			o.recordLocation(s)
			if s.addr.Is6() && !s.route {
				pending = append(pending, s.addr)
			}
		case errors.Is(err, unix.EEXIST):
		default:
			o.failed[s.addr] = notAdded(s.addr, o.mirror.Link(s.link).Name, err)
		}
	})
	if err != nil {
		return err
	}
	return o.awaitLocal(ctx, pending)
}

// localPatience is how long the kernel may take before it accepts packets for a new IPv6 address.
const localPatience = 3 * time.Second

// awaitLocal waits until the kernel has local routes for IPv6 addresses. It adds them later than
// the addresses, in a work queue: within microseconds, or over a second on a busy machine. Until
// then it uses the address as the source of neighbour solicitations, drops the answers, and repeats
// them after a second. So a VIP must not be announced before. A VIP that never becomes local is not
// an error here: clients reach it, since the data path sees packets before the kernel does.
func (o *VIPOwner) awaitLocal(ctx context.Context, addresses []netip.Addr) error {
	for end := time.Now().Add(localPatience); len(addresses) > 0 && time.Now().Before(end); {
		missing, err := o.notLocal(ctx, addresses)
		if err != nil {
			return err
		}
		addresses = missing
		if len(addresses) > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

func notAdded(vip netip.Addr, link string, err error) Problem {
	if errors.Is(err, unix.EACCES) && vip.Is6() {
		return Problem{
			Kind: VIPKind, Key: vip.String(),
			What: fmt.Sprintf("VIP %s cannot be added to %s: IPv6 is switched off there", vip, link),
			Hint: fmt.Sprintf("set net.ipv6.conf.%s.disable_ipv6=0", link),
		}
	}
	return Problem{
		Kind: VIPKind, Key: vip.String(),
		What: fmt.Sprintf("VIP %s cannot be added to %s: %v", vip, link, err),
		Hint: fmt.Sprintf("add it by hand: ip address add %s dev %s", vip, link),
	}
}

// removeAll removes VIPs from locations, and records failures in failed; a missing one is fine. The
// returned error concerns all of them.
func (o *VIPOwner) removeAll(ctx context.Context, steps []vipPlacement, failed map[netip.Addr]error) error {
	requests := make([]*netlink.Request, len(steps))
	for i, s := range steps {
		requests[i] = s.request(false)
	}
	return o.conn.Batch(ctx, requests, func(i int, _ []byte, err error) {
		s := steps[i]
		switch {
		case err == nil, errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.ESRCH), errors.Is(err, unix.ENODEV):
			o.forgetLocation(s)
		default:
			failed[s.addr] = fmt.Errorf("remove VIP %s from %s: %w", s.addr, o.mirror.Link(s.link).Name, err)
		}
	})
}

func (o *VIPOwner) recordLocation(s vipPlacement) {
	if slices.Contains(o.locations[s.addr], s.location) {
		return
	}
	o.locations[s.addr] = append(o.locations[s.addr], s.location)
	if o.isLoAddress(s.location) {
		o.loAddresses++
	}
}

func (o *VIPOwner) forgetLocation(s vipPlacement) {
	i := slices.Index(o.locations[s.addr], s.location)
	if i < 0 {
		return
	}
	if o.isLoAddress(s.location) {
		o.loAddresses--
	}
	if o.locations[s.addr] = slices.Delete(o.locations[s.addr], i, i+1); len(o.locations[s.addr]) == 0 {
		delete(o.locations, s.addr)
	}
}

func (o *VIPOwner) isLoAddress(p location) bool { return !p.route && o.mirror.Link(p.link).Loopback() }

func (o *VIPOwner) adoptRoutes() error {
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		header := netlink.RouteHeader(family, netlink.OwnProtocol)
		header[4], header[7] = unix.RT_TABLE_LOCAL, unix.RTN_LOCAL
		err := o.conn.Dump(unix.RTM_GETROUTE, header, func(m netlink.Message) {
			if rt, ok := netlink.ParseRoute(m.Body); ok && rt.Proto == netlink.OwnProtocol && rt.Dst.IsSingleIP() {
				o.recordLocation(vipPlacement{addr: rt.Dst.Addr(), location: location{link: rt.Link, route: true}})
			}
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("list local routes: %w", err)
		}
	}
	return nil
}

// Prepare sets lo up: VIPs are added there, and in a new namespace it is down.
func (o *VIPOwner) Prepare() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, err := o.loopback()
	return err
}

// loopback returns lo, set up.
func (o *VIPOwner) loopback() (mirror.Link, error) {
	lo, ok := o.mirror.Loopback()
	if !ok {
		return lo, errors.New("this network namespace has no loopback interface")
	}
	if !lo.Up {
		if err := o.setUp(lo); err != nil {
			return lo, fmt.Errorf("set %s up: %w", lo.Name, err)
		}
	}
	return lo, nil
}

func (o *VIPOwner) setUp(l mirror.Link) error {
	header := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(header[4:], uint32(l.Index))
	binary.NativeEndian.PutUint32(header[8:], unix.IFF_UP)
	binary.NativeEndian.PutUint32(header[12:], unix.IFF_UP)
	_, err := o.conn.One(netlink.NewRequest(unix.RTM_NEWLINK, 0, header))
	return err
}

func (s vipPlacement) request(add bool) *netlink.Request {
	if s.route {
		return s.routeRequest(add)
	}
	header := netlink.Header(netlink.Family(s.addr), unix.SizeofIfAddrmsg)
	header[1] = byte(s.addr.BitLen())
	if s.addr.Is4() {
		header[3] = unix.RT_SCOPE_HOST // never the source address of packets that leave
	}
	binary.NativeEndian.PutUint32(header[4:], uint32(s.link))
	if !add {
		return netlink.NewRequest(unix.RTM_DELADDR, 0, header).Attr(unix.IFA_LOCAL, s.addr.AsSlice())
	}
	r := netlink.NewRequest(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, header).
		Attr(unix.IFA_LOCAL, s.addr.AsSlice()).
		Attr(unix.IFA_ADDRESS, s.addr.AsSlice()).
		Attr32(unix.IFA_FLAGS, unix.IFA_F_NODAD|unix.IFA_F_NOPREFIXROUTE).
		Attr(netlink.IFAProto, []byte{netlink.OwnProtocol})
	if s.addr.Is6() {
		// Valid forever, preferred never: so IPv6 does not choose it as a source address.
		life := make([]byte, unix.SizeofIfaCacheinfo)
		binary.NativeEndian.PutUint32(life[4:], 0xffffffff)
		r.Attr(unix.IFA_CACHEINFO, life)
	}
	return r
}

func (s vipPlacement) routeRequest(add bool) *netlink.Request {
	header := netlink.RouteHeader(netlink.Family(s.addr), netlink.OwnProtocol)
	header[1] = byte(s.addr.BitLen())
	header[4], header[7] = unix.RT_TABLE_LOCAL, unix.RTN_LOCAL
	header[6] = unix.RT_SCOPE_HOST
	typ, flags := uint16(unix.RTM_DELROUTE), uint16(0)
	if add {
		typ, flags = unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL
	}
	return netlink.NewRequest(typ, flags, header).Attr(unix.RTA_DST, s.addr.AsSlice()).Attr32(unix.RTA_OIF, uint32(s.link))
}

// VIPKind is the subject of VIPs' problems.
const VIPKind = "vip"

// Problems returns the conditions that prevent clients from reaching VIPs.
func (o *VIPOwner) Problems() []Problem {
	ignores := o.arpIgnoreByLink()
	o.mu.Lock()
	defer o.mu.Unlock()
	var failed []Problem
	for a, err := range o.failed {
		var p Problem
		if !errors.As(err, &p) {
			p = Problem{Kind: VIPKind, Key: a.String(), What: fmt.Sprintf("VIP %s is not maintained: %v", a, err), Hint: "loxilb tries again automatically"}
		}
		failed = append(failed, p)
	}
	out := BoundedProblems(failed, len(failed), VIPKind, "VIPs that cannot be added")
	silent := map[string]netip.Addr{} // links that do not answer ARP for a VIP, and the first one
	for a := range o.wanted {
		if !a.Is4() {
			continue
		}
		for _, l := range o.mirror.OnLink(a) {
			mode, ours := ignores[l.Name], len(o.locations[a]) > 0
			if first := silent[l.Name]; (mode == 8 || (mode == 3 && ours)) && (!first.IsValid() || a.Less(first)) {
				silent[l.Name] = a
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(silent)) {
		out = append(out, Problem{
			Kind: VIPKind, Key: silent[name].String(),
			What: fmt.Sprintf("%s does not answer ARP for VIPs such as %s: its arp_ignore is %d", name, silent[name], ignores[name]),
			Hint: fmt.Sprintf("set net.ipv4.conf.all.arp_ignore=0 and net.ipv4.conf.%s.arp_ignore=0 (1 and 2 do as well)", name),
		})
	}
	return out
}
